// SPDX-License-Identifier: Apache-2.0

package post

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// service takes reports, unless it is down.
type service struct {
	t     *testing.T
	err   error
	taken []*spec.Report
	keys  map[string]bool
	asked int
}

func (s *service) post(_ context.Context, _ spec.Reporting, raw []byte) error {
	s.t.Helper()
	s.asked++
	if s.err != nil {
		return s.err
	}
	data, key, err := sign.OpenReport(raw)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := spec.DecodeReport(data)
	if err != nil || r.Key != key.ID() {
		s.t.Fatalf("signed by %s, says %+v: %v", key.ID(), r, err)
	}
	s.keys[r.Key] = true
	s.taken = append(s.taken, r)
	return nil
}

// seqs are the numbers that were taken.
func (s *service) seqs() (all []uint64) {
	for _, r := range s.taken {
		all = append(all, r.Seq)
	}
	return all
}

type node struct {
	*testing.T
	dir   string
	clock time.Time
	s     *service
	r     *Reporter
}

func newNode(t *testing.T) *node {
	n := &node{T: t, dir: filepath.Join(t.TempDir(), "report"), clock: time.Unix(1790000000, 0), s: &service{t: t, keys: map[string]bool{}}}
	n.restart()
	return n
}

func (n *node) restart() {
	n.Helper()
	var err error
	if n.r, err = openAt(n.dir, spec.KeyPinned, n.s.post, n.Logf, func() time.Time { return n.clock }); err != nil {
		n.Fatal(err)
	}
}

func (n *node) look(health string) bool {
	n.Helper()
	return n.lookTo(spec.Reporting{URL: "https://fleet.example", Interval: 300}, health, 0)
}

func (n *node) lookTo(to spec.Reporting, health string, generation uint64) bool {
	n.Helper()
	one := spec.NewReport(&spec.Status{Fleet: "f", Node: "n", BootID: "b", Health: spec.Health(health), Generation: generation})
	news, err := n.r.Look(n.Context(), one, to)
	if err != nil {
		n.Fatal(err)
	}
	return news
}

func (n *node) files() int {
	n.Helper()
	list, err := os.ReadDir(filepath.Join(n.dir, spoolName))
	if err != nil {
		n.Fatal(err)
	}
	return len(list)
}

func TestOnChangeAndElseAtIntervals(t *testing.T) {
	n := newNode(t)
	if !n.look("ok") || len(n.s.taken) != 1 {
		t.Fatalf("the first look: %d reports", len(n.s.taken))
	}
	for range 4 {
		n.clock = n.clock.Add(time.Minute)
		if n.look("ok") || len(n.s.taken) != 1 {
			t.Fatalf("nothing changed, and there are %d reports", len(n.s.taken))
		}
	}
	n.clock = n.clock.Add(time.Second)
	if !n.look("degraded") || len(n.s.taken) != 2 {
		t.Fatalf("a change: %d reports", len(n.s.taken))
	}
	n.clock = n.clock.Add(300 * time.Second * 9 / 8)
	if n.look("degraded") || len(n.s.taken) != 3 {
		t.Fatalf("its time has come: %d reports", len(n.s.taken))
	}
	if n.files() != 0 {
		t.Error("what was taken is on the disk")
	}
}

// A fleet that boots together reports at different times.
func TestIntervalsDiffer(t *testing.T) {
	n := newNode(t)
	least, most := time.Hour, time.Duration(0)
	for i := range 200 {
		n.look(fmt.Sprint(i))
		d := n.r.due.Sub(n.clock)
		least, most = min(least, d), max(most, d)
	}
	if least < 260*time.Second || most > 340*time.Second || most-least < 50*time.Second {
		t.Errorf("from %s to %s", least, most)
	}
}

func TestSpooledWhileNothingAnswers(t *testing.T) {
	n := newNode(t)
	n.s.err = errors.New("no route")
	for i := range 2 * spoolMax {
		n.look(fmt.Sprint(i))
		n.clock = n.clock.Add(time.Hour)
		n.look(fmt.Sprint(i)) // without news: costs the disk nothing
		n.clock = n.clock.Add(time.Hour)
	}
	if len(n.r.spool.list) > spoolMax || n.files() > spoolMax || n.files() < spoolMax/2-1 {
		t.Fatalf("%d wait, %d files, the bound is %d", len(n.r.spool.list), n.files(), spoolMax)
	}
	n.restart() // what had no news is not kept
	kept := len(n.r.spool.list)
	if kept != n.files() || kept == 0 {
		t.Fatalf("%d wait after a restart, %d files", kept, n.files())
	}
	n.s.err = nil
	n.look("fine")
	if len(n.s.taken) != kept+1 || n.files() != 0 || len(n.r.spool.list) != 0 {
		t.Fatalf("%d of %d taken, %d files", len(n.s.taken), kept+1, n.files())
	}
	seqs := n.s.seqs()
	if !slices.IsSorted(seqs) || len(slices.Compact(slices.Clone(seqs))) != len(seqs) {
		t.Errorf("numbers do not rise: %v", seqs)
	}
	if last := n.s.taken[kept-1].Axes.Health.State; last != fmt.Sprint(2*spoolMax-1) {
		t.Errorf("the newest news are lost: %s", last)
	}
	if len(n.s.keys) != 1 {
		t.Errorf("%d keys", len(n.s.keys))
	}
}

// A service that is down is asked less and less, and all that waits is sent once it is up.
func TestBackOff(t *testing.T) {
	n := newNode(t)
	n.s.err = errors.New("no route")
	end := n.clock.Add(24 * time.Hour)
	for i := 0; n.clock.Before(end); i++ {
		n.look(fmt.Sprint(i / 100))
		n.clock = n.clock.Add(15 * time.Second)
	}
	if n.s.asked > 250 || n.s.asked < 90 {
		t.Errorf("asked %d times in a day", n.s.asked)
	}
}

func TestARefusedReportGoes(t *testing.T) {
	n := newNode(t)
	n.s.err = fmt.Errorf("number 7 was taken before: %w", ErrRefused)
	n.look("ok")
	if len(n.r.spool.list) != 0 || n.s.asked != 1 {
		t.Errorf("%d wait, asked %d times", len(n.r.spool.list), n.s.asked)
	}
	n.s.err = nil
	if n.look("degraded"); len(n.s.taken) != 1 {
		t.Error("the next one was not sent")
	}
}

// The number rises over restarts, a clock that went back, and a disk as it was before.
func TestNumbersRise(t *testing.T) {
	n := newNode(t)
	n.look("1")
	old, err := os.ReadFile(filepath.Join(n.dir, sequenceName))
	if err != nil {
		t.Fatal(err)
	}
	n.clock = n.clock.Add(-time.Hour)
	n.restart()
	n.look("2")
	n.restart()
	n.look("3")
	n.clock = n.clock.Add(2 * time.Hour)
	if err := os.WriteFile(filepath.Join(n.dir, sequenceName), old, 0o600); err != nil {
		t.Fatal(err)
	}
	n.restart()
	n.look("4")
	if seqs := n.s.seqs(); !slices.IsSorted(seqs) || len(slices.Compact(seqs)) != 4 {
		t.Errorf("%v", seqs)
	}
	if len(n.s.keys) != 1 {
		t.Errorf("%d keys", len(n.s.keys))
	}
}

// What a cut left in the spool keeps nothing from being reported.
func TestASpoolAfterACut(t *testing.T) {
	n := newNode(t)
	n.s.err = errors.New("no route")
	n.look("ok")
	for name, text := range map[string]string{".0000000000000007.json.123": "{", "0000000000000001.json": "", "0000000000000002.json": string(bytes.Repeat([]byte("{"), sign.MaxReport+1)), "x": "{"} {
		if err := os.WriteFile(filepath.Join(n.dir, spoolName, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n.s.err = nil
	n.restart()
	if n.look("ok"); len(n.s.taken) != 2 || n.files() != 0 {
		t.Errorf("%d taken, %d files", len(n.s.taken), n.files())
	}
}

func TestKey(t *testing.T) {
	n := newNode(t)
	id, err := KeyID(n.dir)
	if err != nil || id != n.r.id {
		t.Errorf("%q, %v; want %q", id, err, n.r.id)
	}
	if id, err := KeyID(filepath.Join(t.TempDir(), "report")); id != "" || err != nil {
		t.Errorf("of a node without one: %q, %v", id, err)
	}
	info, err := os.Stat(keyFile(n.dir))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	// A key that others could read, or that cannot be parsed, is not used: the node goes on
	// with another, which the service shows as such, and the damaged one is kept beside it.
	known := map[string]bool{id: true}
	for name, damage := range map[string]func(name string) error{
		"for all to read": func(name string) error { return os.Chmod(name, 0o644) },
		"empty":           func(name string) error { return os.Truncate(name, 0) },
		"cut":             func(name string) error { return os.Truncate(name, 100) },
		"other bytes":     func(name string) error { return os.WriteFile(name, []byte("\x00\xff"), 0o600) },
		"a directory":     func(name string) error { return errors.Join(os.Remove(name), os.Mkdir(name, 0o700)) },
	} {
		if err := damage(keyFile(n.dir)); err != nil {
			t.Fatal(err)
		}
		if id, err := KeyID(n.dir); err == nil {
			t.Errorf("%s: the key %s is used", name, id)
		}
		r, err := OpenReports(n.dir, spec.KeyPinned, n.s.post, t.Logf)
		if err != nil || known[r.id] {
			t.Fatalf("%s: %v", name, err)
		}
		known[r.id] = true
		if aside, _ := filepath.Glob(keyFile(n.dir) + ".damaged-*"); len(aside) != len(known)-1 {
			t.Errorf("%s: beside it there is %q", name, aside)
		}
	}
}

// In a registry, too, it is news that a change has proved itself; what else a node is at waits for the
// interval.
func TestProvedInARegistry(t *testing.T) {
	n := newNode(t)
	for i, c := range []struct {
		activity spec.Activity
		news     bool
	}{{spec.ActivitySoaking, true}, {spec.ActivityIdle, true}, {spec.ActivityRunning("trim"), false}, {spec.ActivityWaiting("confirm"), true}} {
		one := spec.NewReport(&spec.Status{Fleet: "f", Node: "n", BootID: "b", Health: spec.HealthOK, Activity: c.activity})
		news, err := n.r.Look(n.Context(), one, spec.Reporting{Registry: "r/a", Interval: 3600})
		if err != nil || news != c.news {
			t.Errorf("%d, %s: news %v, %v", i, c.activity, news, err)
		}
		n.clock = n.clock.Add(10 * time.Minute)
	}
}

// In a registry a report stays until that is swept: what does not make another node of it
// waits for the interval, and what goes to and fro is not told each time.
func TestToARegistry(t *testing.T) {
	n := newNode(t)
	to := spec.Reporting{Registry: "r/a", Interval: 3600}
	n.lookTo(to, "ok", 1)
	began := n.clock
	for i := range uint64(60) { // an hour of looks
		n.clock = n.clock.Add(time.Minute)
		n.lookTo(to, "ok", 1+i)
	}
	if len(n.s.taken) > 2 {
		t.Errorf("%d reports of what is not news", len(n.s.taken))
	}
	n.clock = began.Add(2 * time.Hour)
	n.lookTo(to, "ok", 1)
	before := len(n.s.taken)
	for i := range 60 { // an hour of a node that goes to and fro
		n.clock = n.clock.Add(time.Minute)
		n.lookTo(to, []string{"degraded", "ok"}[i%2], 1)
	}
	if told := len(n.s.taken) - before; told > 13 || told < 6 {
		t.Errorf("%d reports in an hour", told)
	}
	// What waited while nothing answered is one report, the last.
	n.s.err = errors.New("no route")
	for i := range 10 {
		n.clock = n.clock.Add(time.Hour)
		n.lookTo(to, fmt.Sprint(i), 1)
	}
	n.s.err, before = nil, len(n.s.taken)
	n.clock = n.clock.Add(time.Hour)
	n.lookTo(to, "last", 1)
	if told := len(n.s.taken) - before; told != 1 || n.s.taken[before].Axes.Health.State != "last" || n.files() != 0 {
		t.Errorf("%d reports after an outage, %d files", told, n.files())
	}
}

// TestSpoolOfOthers: of more files than are kept the newest are read, in the order of their numbers,
// and the others, which may be of any size, go unread.
func TestSpoolOfOthers(t *testing.T) {
	dir := t.TempDir()
	for i := range spoolMax + 3 {
		data := fmt.Appendf(nil, "{%d}", i)
		if i == 1 {
			data = make([]byte, sign.MaxReport+1)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%016d.json", i+1)), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s, err := openSpool(dir)
	if err != nil {
		t.Fatal(err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != spoolMax || len(s.list) != spoolMax {
		t.Fatalf("%d are kept, %d files, %v", len(s.list), len(left), err)
	}
	for i, one := range s.list {
		if want := uint64(i + 4); one.seq != want || string(one.raw) != fmt.Sprintf("{%d}", want-1) || left[i].Name() != filepath.Base(s.name(want)) {
			t.Errorf("number %d: %d %s, %s", i, one.seq, one.raw, left[i].Name())
		}
	}
}
