// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"crypto/ecdsa"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
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
func signed(t *testing.T, key *ecdsa.PrivateKey, fleet, node string, seq uint64, grade spec.KeyGrade, health string, at time.Time) []byte {
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
	ask := func(asked Asked, lines ...view.Reported) map[string]Report {
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
		all, err := ReadReports(strings.NewReader(text.String()), asked, by, now)
		must(t, err)
		return all
	}
	both := among("a", "b")
	first := signed(t, a, "metal", "a", 7, spec.KeyPinned, "ok", noon)
	got := ask(both, view.Reported{Node: "a", Signed: first}, view.Reported{Node: "b", Signed: signed(t, b, "metal", "b", 3, spec.KeyBoot, "degraded", noon)},
		view.Reported{Node: "stranger", Signed: signed(t, thief, "metal", "stranger", 1, spec.KeyPinned, "ok", noon)})
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
		if got := ask(both, view.Reported{Node: one.node, Signed: one.raw})[one.node]; !strings.Contains(got.Garbled, one.why) || !got.At.IsZero() {
			t.Errorf("%s: %+v", what, got)
		}
	}
	if got := ask(both, view.Reported{Node: "a", Signed: first})["a"]; !got.At.Equal(noon) {
		t.Errorf("a report that was heard is of %s again", got.At)
	}
	now = noon.Add(time.Hour)
	if got := ask(both, view.Reported{Node: "b", Signed: signed(t, next, "metal", "b", 1, spec.KeyPinned, "ok", now)})["b"]; got.Garbled != "" || got.Pinned {
		t.Errorf("the next boot of a node that was silent: %+v", got)
	}
	lines := strings.Repeat(`{"node":"a"}`+"\n", 2*len(both.Published)+spare+2)
	if _, err := ReadReports(strings.NewReader(lines), both, nil, now); err == nil || !strings.Contains(err.Error(), "more than twice as many") {
		t.Errorf("lines without an end: %v", err)
	}
	ask(among("a"))
	if text, err := os.ReadFile(file); err != nil || strings.Contains(string(text), `"b"`) {
		t.Errorf("a node that was retired is kept: %v\n%s", err, text)
	}
}
