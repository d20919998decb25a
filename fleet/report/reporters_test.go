// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"crypto/ecdsa"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

func among(nodes ...string) Asked {
	a := Asked{Fleet: "metal", Published: map[string]bool{}}
	for _, name := range nodes {
		a.Published[name] = true
	}
	return a
}

// signed is what a node says of itself in a fleet, signed.
func signed(t testing.TB, key *ecdsa.PrivateKey, fleet, node string, seq uint64, grade spec.KeyGrade, health string, at time.Time) []byte {
	t.Helper()
	r := spec.NewReport(&spec.Status{Fleet: fleet, Node: node, BootID: sign.VerifierOf(key).ID()[:8], Health: spec.Health(health), Overlay: "sha256:" + strings.Repeat("a", 64)})
	r.Key, r.Grade, r.Seq, r.Interval, r.Time = sign.VerifierOf(key).ID(), grade, seq, 300, at
	r.Axes.Health.State = health
	data, err := r.Encode()
	must(t, err)
	raw, err := sign.SignReport(key, data)
	must(t, err)
	return raw
}

// TestStolenServiceOfReports: who has the service withholds reports; he makes none up, and plays
// none back, also for a driver that was started again.
func TestStolenServiceOfReports(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "caisson.reporters")
	key := func() *ecdsa.PrivateKey {
		k, err := sign.Generate()
		must(t, err)
		return k
	}
	a, b, next, thief := key(), key(), key(), key()
	now := noon
	ask := func(asked Asked, lines ...Reported) map[string]Standing {
		t.Helper()
		var text strings.Builder
		for _, one := range lines {
			one.Received, one.Overlay, one.Axes.Health.State, one.Grade = now, "sha256:what the service says", "ok", spec.KeyPinned
			line, err := json.Marshal(one)
			must(t, err)
			text.Write(append(line, '\n'))
		}
		by, err := OpenReporters(file, false)
		must(t, err)
		all, err := Hear(strings.NewReader(text.String()), asked, by, now)
		must(t, err)
		return all
	}
	both := among("a", "b")
	first := signed(t, a, "metal", "a", 7, spec.KeyPinned, "ok", noon)
	got := ask(both, Reported{Node: "a", Signed: first}, Reported{Node: "b", Signed: signed(t, b, "metal", "b", 3, spec.KeyBoot, "degraded", noon)},
		Reported{Node: "stranger", Signed: signed(t, thief, "metal", "stranger", 1, spec.KeyPinned, "ok", noon)})
	if len(got) != 2 || !got["a"].Pinned || got["a"].Trouble != "" || got["a"].Overlay != "sha256:"+strings.Repeat("a", 64) || got["b"].Pinned || got["b"].Trouble != "degraded" {
		t.Fatalf("%+v", got)
	}
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), "stranger") {
		t.Errorf("a node that is not published is kept: %v\n%s", err, text)
	}
	now = noon.Add(10 * time.Minute)
	for what, one := range map[string]struct {
		node, why string
		raw       []byte
	}{
		"no signature":          {"a", "does not hand out what the node signed", nil},
		"not a report":          {"a", "report", []byte("{}")},
		"another key":           {"a", "not the one that is pinned: it is " + sign.VerifierOf(thief).ID() + "; where that is right, take the node out of " + file, signed(t, thief, "metal", "a", 99, spec.KeyPinned, "ok", now)},
		"an older report":       {"a", "number 6 was taken before", signed(t, a, "metal", "a", 6, spec.KeyPinned, "ok", now)},
		"another node's":        {"b", `it is node "a"'s`, first},
		"another fleet's":       {"a", `of fleet "copper"`, signed(t, a, "copper", "a", 9, spec.KeyPinned, "ok", now)},
		"another node's key":    {"b", "its key belongs to another node", signed(t, a, "metal", "b", 9, spec.KeyPinned, "ok", now)},
		"another key of a boot": {"b", "the accepted key still reports", signed(t, next, "metal", "b", 1, spec.KeyBoot, "ok", now)},
	} {
		if got := ask(both, Reported{Node: one.node, Signed: one.raw})[one.node]; !strings.Contains(got.Garbled, one.why) || !got.At.IsZero() {
			t.Errorf("%s: %+v", what, got)
		}
	}
	if got := ask(both, Reported{Node: "a", Signed: first})["a"]; !got.At.Equal(noon) {
		t.Errorf("a report that was heard is of %s again", got.At)
	}
	now = noon.Add(time.Hour)
	if got := ask(both, Reported{Node: "b", Signed: signed(t, next, "metal", "b", 1, spec.KeyPinned, "ok", now)})["b"]; got.Garbled != "" || got.Pinned {
		t.Errorf("the next boot of a node that was silent: %+v", got)
	}
	lines := strings.Repeat(`{"node":"a"}`+"\n", 2*len(both.Published)+spare+2)
	if _, err := Hear(strings.NewReader(lines), both, nil, now); err == nil || !strings.Contains(err.Error(), "more than twice as many") {
		t.Errorf("lines without an end: %v", err)
	}
	ask(among("a"))
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), `"b"`) {
		t.Errorf("a node that was retired is kept: %v\n%s", err, text)
	}
}

// TestAReportIsVerifiedOnce: bytes that were verified and counted are not verified again, until the
// node says something new, or what is known of its key is something else. What is kept is bounded by
// the nodes that are published, and what did not change is not written.
func TestAReportIsVerifiedOnce(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "caisson.reporters")
	a, err := sign.Generate()
	must(t, err)
	b, err := sign.Generate()
	must(t, err)
	by, err := OpenReporters(file, false)
	must(t, err)
	verified, verify := 0, by.open
	by.open = func(node string, raw []byte, at time.Time) (*spec.Report, error) {
		verified++
		return verify(node, raw, at)
	}
	look := func(wants int, asked Asked, lines ...Reported) map[string]Standing {
		t.Helper()
		var text strings.Builder
		for _, one := range lines {
			line, err := json.Marshal(one)
			must(t, err)
			text.Write(append(line, '\n'))
		}
		before := verified
		all, err := Hear(strings.NewReader(text.String()), asked, by, noon.Add(time.Hour))
		must(t, err)
		if verified-before != wants {
			t.Errorf("%d reports were verified, want %d", verified-before, wants)
		}
		return all
	}
	said := Reported{Node: "a", Received: noon, Signed: signed(t, a, "metal", "a", 1, spec.KeyPinned, "ok", noon)}
	other := Reported{Node: "b", Received: noon, Signed: signed(t, b, "metal", "b", 1, spec.KeyPinned, "ok", noon)}
	both := among("a", "b")
	first := look(2, both, said, other)
	written, err := os.Stat(file)
	must(t, err)
	if again := look(0, both, said, other); again["a"] != first["a"] || again["b"] != first["b"] {
		t.Errorf("the second look has %+v, the first had %+v", again, first)
	}
	if now, err := os.Stat(file); err != nil || !os.SameFile(now, written) {
		t.Errorf("what did not change is written again: %v", err)
	}
	heard := said
	heard.Received, heard.Listens, heard.TPM = noon.Add(time.Minute), noon.Add(2*time.Minute), view.Stale
	if got := look(0, both, heard, other)["a"]; !got.At.Equal(noon) || !got.Listens.Equal(heard.Listens) || !got.Stale {
		t.Errorf("the service's own words are those of now, and the report is as old as it was: %+v", got)
	}
	earlier := said
	earlier.Received = noon.Add(-time.Minute)
	look(1, both, earlier, other) // bounded by another time
	look(1, both, said, Reported{Node: "b", Received: noon, Signed: signed(t, b, "metal", "b", 2, spec.KeyPinned, "degraded", noon)})
	elsewhere := both
	elsewhere.Fleet = "copper"
	if got := look(2, elsewhere, said, other)["a"]; got.Garbled == "" {
		t.Errorf("a report counts for another fleet: %+v", got)
	}
	delete(by.nodes, "a") // as by who takes the node out of the file
	look(1, both, said)
	thief := said
	thief.Signed = signed(t, b, "metal", "a", 9, spec.KeyPinned, "ok", noon)
	for range 2 { // what never counted is looked at anew: it may count one day
		if got := look(1, both, thief)["a"]; got.Garbled == "" {
			t.Errorf("another node's key counts: %+v", got)
		}
	}
	look(0, among("a"), said)
	if len(by.opened) != 1 || len(by.nodes) != 1 {
		t.Errorf("of a node that is not published %d and %d are kept", len(by.opened), len(by.nodes))
	}
}

// TestWhoIsTakenOutOfTheFile: what an operator takes out of the file counts for a driver that runs.
func TestWhoIsTakenOutOfTheFile(t *testing.T) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	file := filepath.Join(t.TempDir(), "caisson.reporters")
	by, err := OpenReporters(file, false)
	must(t, err)
	look := func(seq uint64) (Standing, *ecdsa.PrivateKey) {
		t.Helper()
		key, err := sign.Generate()
		must(t, err)
		line, err := json.Marshal(Reported{Node: "a", Received: noon, Signed: signed(t, key, "metal", "a", seq, spec.KeyPinned, "ok", noon)})
		must(t, err)
		all, err := Hear(bytes.NewReader(append(line, '\n')), among("a"), by, noon.Add(time.Minute))
		must(t, err)
		return all["a"], key
	}
	if got, _ := look(1); got.Garbled != "" {
		t.Fatalf("%+v", got)
	}
	if got, _ := look(2); !strings.Contains(got.Garbled, "take the node out of "+file) {
		t.Fatalf("%+v", got)
	}
	empty, err := json.Marshal(reportersDoc{APIVersion: spec.APIVersion, Kind: ReportersKind})
	must(t, err)
	must(t, os.WriteFile(file+".new", empty, 0o644))
	must(t, os.Chtimes(file+".new", noon, noon))
	must(t, os.Rename(file+".new", file))
	by.unsaved = true // and also while a driver looks: what it knows is not written over that
	must(t, by.save(among("a").has))
	if text, err := os.ReadFile(file); err != nil || !bytes.Equal(text, empty) {
		t.Errorf("%s, %v", text, err)
	}
	got, key := look(3)
	if got.Garbled != "" {
		t.Errorf("%+v", got)
	}
	if text, err := os.ReadFile(file); err != nil || !strings.Contains(string(text), sign.VerifierOf(key).ID()) {
		t.Errorf("%s, %v", text, err)
	}
}

// BenchmarkLook is a driver's look at the reports of all nodes: the first, which verifies each, and
// the next, where a tenth says something new or none does: of a service with cursors, and of one that
// says all each time.
func BenchmarkLook(b *testing.B) {
	noon := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	for _, nodes := range []int{10_000, 100_000} {
		lines := func(keys []*ecdsa.PrivateKey, seq uint64, of int) []byte {
			var text bytes.Buffer
			for i, key := range keys[:of] {
				name := fmt.Sprintf("n%06d", i)
				line, err := json.Marshal(Reported{Node: name, Received: noon, Signed: signed(b, key, "metal", name, seq, spec.KeyPinned, "ok", noon)})
				must(b, err)
				text.Write(append(line, '\n'))
			}
			return text.Bytes()
		}
		var keys []*ecdsa.PrivateKey
		asked := among()
		for i := range nodes {
			key, err := sign.Generate()
			must(b, err)
			keys = append(keys, key)
			asked.Published[fmt.Sprintf("n%06d", i)] = true
		}
		first := lines(keys, 1, nodes)
		fresh := lines(keys, 2, nodes/10)
		look := func(b *testing.B, by *Reporters, text ...[]byte) {
			asked.Query(by)
			if all, err := Hear(bytes.NewReader(bytes.Join(text, nil)), asked, by, noon); err != nil || len(all) != nodes {
				b.Fatal(len(all), err)
			}
		}
		cursor := []byte(`{"cursor":"1.1"}` + "\n")
		measure := func(name string, before [][]byte, text ...[]byte) {
			b.Run(fmt.Sprint("nodes=", nodes, "/", name), func(b *testing.B) {
				worked := time.Duration(0)
				for b.Loop() {
					b.StopTimer()
					by, err := OpenReporters(filepath.Join(b.TempDir(), "caisson.reporters"), false)
					must(b, err)
					if asked.Heard = (&Heard{}); before != nil {
						look(b, by, before...)
					}
					began := processorTime(b)
					b.StartTimer()
					look(b, by, text...)
					worked += processorTime(b) - began
				}
				b.ReportMetric(float64(worked.Microseconds())/float64(b.N*nodes), "cpu-µs/node")
				b.ReportMetric(float64(len(bytes.Join(text, nil)))/float64(nodes), "B/node")
			})
		}
		cut := bytes.Index(first, []byte(fmt.Sprintf(`{"node":"n%06d"`, nodes/10)))
		measure("first", nil, first, cursor)
		measure("next", [][]byte{first, cursor}, fresh, cursor)
		measure("none", [][]byte{first, cursor}, cursor)
		measure("next-of-all", [][]byte{first}, fresh, first[cut:])
		measure("none-of-all", [][]byte{first}, first)
	}
}

// processorTime is what this process has used of the processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
