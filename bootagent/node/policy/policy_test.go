// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// usual is how often a setting is set again where nothing is said.
var usual = int(spec.UsualBudget().Corrections)

// host is a node on a simulated clock. A second is a look.
type host struct {
	t    *testing.T
	dir  string
	boot int
	up   time.Duration
	rows []spec.Enforcement
}

func (h *host) keeper() *Keeper {
	h.t.Helper()
	b, err := Open(h.dir, fmt.Sprint("boot ", h.boot))
	if err != nil {
		h.t.Fatal(err)
	}
	return &Keeper{Book: b, Now: time.Unix(0, 0).Add(time.Duration(h.boot)*time.Hour + h.up), Up: h.up,
		Rule:  (&spec.Overlay{Agent: &spec.Agent{Enforce: h.rows}}).Enforced,
		Rival: func(d spec.Drift) string { return d.Reason }}
}

func swappiness(from, to string) spec.Drift {
	return spec.Drift{Item: "sysctl", Key: "vm/swappiness", From: from, To: to, Action: spec.ActionChange}
}

// look judges a drift and corrects it when that is the verdict. Each look is of
// another process: nothing but the book remembers.
func (h *host) look(d spec.Drift) spec.Drift {
	h.t.Helper()
	k := h.keeper()
	if d = k.Judge(d, false); d.Action == spec.ActionChange {
		if err := k.Correct([]spec.Drift{d}); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := k.Book.Save(); err != nil {
		h.t.Fatal(err)
	}
	return d
}

func TestABudgetIsSpent(t *testing.T) {
	h := &host{t: t, dir: t.TempDir()}
	for n := range usual {
		h.up += time.Minute
		if d := h.look(swappiness("77", "10")); d.Action != spec.ActionChange || d.Rival != spec.RivalUnknown {
			t.Fatalf("correction %d: %+v", n+1, d)
		}
	}
	h.up += time.Minute
	rival := swappiness("77", "10")
	rival.Rival = "pid 7 (tuned)"
	want := rival
	want.Action, want.Count, want.Since = spec.ActionQuarantine, usual, time.Unix(int64(h.up/time.Second), 0).UTC()
	if diff := cmp.Diff(want, h.look(rival)); diff != "" {
		t.Errorf("after the budget (-want +got):\n%s", diff)
	}

	// It lasts: over days, another value, a reboot.
	h.up += 48 * time.Hour
	if d := h.look(swappiness("78", "10")); d.Action != spec.ActionQuarantine || d.Count != usual {
		t.Errorf("two days later: %+v", d)
	}
	h.boot, h.up = 1, 0
	if d := h.look(swappiness("60", "10")); d.Action != spec.ActionQuarantine {
		t.Errorf("after a reboot: %+v", d)
	}
	if held := h.keeper().Held("sysctl", nil); len(held) != 1 || held[0].From != "10" || held[0].To != "10" {
		t.Errorf("while it is as wanted: %+v", held)
	}
	if held := h.keeper().Held("sysctl", []spec.Drift{swappiness("60", "10")}); len(held) != 0 {
		t.Errorf("while it is not: %+v", held)
	}

	// Another value that is wanted ends it.
	if d := h.look(swappiness("60", "20")); d.Action != spec.ActionChange {
		t.Errorf("another value is wanted: %+v", d)
	}
}

// A setting, or the others of its kind, may have a budget of its own: by the row that
// counts, and by no other.
func TestABudgetOfItsOwn(t *testing.T) {
	short, long := &spec.Budget{Corrections: 2, Per: 60}, &spec.Budget{Corrections: 7, Per: 24 * 60 * 60}
	for name, tc := range map[string]struct {
		rows  []spec.Enforcement
		every time.Duration
		want  int // corrections; -1: without end
	}{
		"of its key":                    {[]spec.Enforcement{{Item: "sysctl", Policy: spec.PolicyEnforce, Budget: long}, {Item: "sysctl", Key: "vm/swappiness", Policy: spec.PolicyEnforce, Budget: short}}, time.Second, 2},
		"of its kind":                   {[]spec.Enforcement{{Item: "sysctl", Policy: spec.PolicyProtect, Budget: long}}, time.Hour, 7},
		"of another kind":               {[]spec.Enforcement{{Item: "mounts", Policy: spec.PolicyEnforce, Budget: short}}, time.Second, usual},
		"no end":                        {[]spec.Enforcement{{Item: "sysctl", Policy: spec.PolicyEnforce, Budget: &spec.Budget{Corrections: 3, Per: 1 << 62}}}, time.Second, usual},
		"nothing":                       {[]spec.Enforcement{{Item: "sysctl", Policy: spec.PolicyEnforce, Budget: &spec.Budget{}}}, time.Second, usual},
		"its key has none":              {[]spec.Enforcement{{Item: "sysctl", Policy: spec.PolicyEnforce, Budget: short}, {Item: "sysctl", Key: "vm/swappiness", Policy: spec.PolicyEnforce}}, time.Second, usual},
		"it is over before it is spent": {[]spec.Enforcement{{Item: "sysctl", Policy: spec.PolicyEnforce, Budget: short}}, 31 * time.Second, -1},
	} {
		h := &host{t: t, dir: t.TempDir(), rows: tc.rows}
		made := 0
		for ; made < 50; made++ {
			h.up += tc.every
			if d := h.look(swappiness("77", "10")); d.Action != spec.ActionChange {
				if d.Count != tc.want {
					t.Errorf("%s: %+v", name, d)
				}
				break
			}
		}
		if made != tc.want && (made != 50 || tc.want != -1) {
			t.Errorf("%s: %d corrections, want %d", name, made, tc.want)
		}
	}
}

// What an operator clears is corrected again, with the whole budget.
func TestClear(t *testing.T) {
	for _, tc := range []struct {
		item, key string
		ended     int
	}{{"", "", 1}, {"sysctl", "", 1}, {"sysctl", "vm/swappiness", 1}, {"mounts", "", 0}, {"sysctl", "vm/dirty_ratio", 0}} {
		h := &host{t: t, dir: t.TempDir()}
		for range usual + 1 {
			h.look(swappiness("77", "10"))
		}
		b := h.keeper().Book
		if ended := b.Clear(tc.item, tc.key); len(ended) != tc.ended {
			t.Errorf("clear %q %q: %+v", tc.item, tc.key, ended)
		}
		if err := b.Save(); err != nil {
			t.Fatal(err)
		}
		made := 0
		for h.look(swappiness("77", "10")).Action == spec.ActionChange {
			made++
		}
		if made != usual*tc.ended {
			t.Errorf("after clear %q %q: %d corrections", tc.item, tc.key, made)
		}
	}
}

// What is only reported costs nothing, and is reported also when it was quarantined.
func TestReport(t *testing.T) {
	h := &host{t: t, dir: t.TempDir()}
	for range usual + 1 {
		h.look(swappiness("77", "10"))
	}
	h.rows = []spec.Enforcement{{Item: "sysctl", Key: "vm/swappiness", Policy: spec.PolicyReport}}
	if d := h.look(swappiness("77", "10")); d.Action != spec.ActionReport || d.Rival != spec.RivalUnknown {
		t.Errorf("%+v", d)
	}
	if held := h.keeper().Held("sysctl", nil); len(held) != 0 {
		t.Errorf("held: %+v", held)
	}
	for _, untouched := range []string{spec.ActionDefer, spec.ActionRefuse, spec.ActionRun, spec.ActionFailed, spec.ActionRemove} {
		d := swappiness("77", "10")
		d.Action = untouched
		if got := h.keeper().Judge(d, false); got != d {
			t.Errorf("%s is judged %+v", untouched, got)
		}
	}
}

// What could not be set before was never set: it is under no policy and costs nothing.
func TestFresh(t *testing.T) {
	h := &host{t: t, dir: t.TempDir(), rows: []spec.Enforcement{{Item: "sysctl", Policy: spec.PolicyReport}}}
	k := h.keeper()
	k.Fresh = func(item, key string) bool { return item == "sysctl" && key == "vm/swappiness" }
	d := k.Judge(swappiness("60", "10"), false)
	if d.Action != spec.ActionChange || d.Rival != "" {
		t.Errorf("%+v", d)
	}
	if err := k.Correct([]spec.Drift{d}); err != nil || len(k.Book.pages.Keys) != 0 {
		t.Errorf("%v, book %+v", err, k.Book.pages.Keys)
	}
}

// A correction that fails is nobody's doing.
func TestUndone(t *testing.T) {
	h := &host{t: t, dir: t.TempDir()}
	for range 3 * usual {
		k := h.keeper()
		d := k.Judge(swappiness("77", "10"), false)
		if d.Action != spec.ActionChange {
			t.Fatalf("%+v", d)
		}
		if err := k.Correct([]spec.Drift{d}); err != nil {
			t.Fatal(err)
		}
		k.Undone(d)
		if err := k.Book.Save(); err != nil {
			t.Fatal(err)
		}
		h.up += time.Second
	}
}

func TestOverlays(t *testing.T) {
	h := &host{t: t, dir: t.TempDir()}
	quarantined := func() bool { return h.keeper().Judge(swappiness("77", "10"), false).Action == spec.ActionQuarantine }
	spend := func() {
		for range usual + 1 {
			h.look(swappiness("77", "10"))
		}
	}
	move := func(overlay string, kind string, drift ...spec.Drift) {
		if err := h.keeper().Book.Move(overlay, []string{kind}, drift); err != nil {
			t.Fatal(err)
		}
	}
	if !h.keeper().Book.Blank() {
		t.Error("no overlay is in effect, and the book is not blank")
	}
	move("a", "sysctl")
	spend()
	move("b", "mounts")
	if !quarantined() {
		t.Error("a live change of another kind has ended it")
	}
	move("c", "sysctl", h.look(swappiness("77", "10")))
	if !quarantined() {
		t.Error("a live change of another setting has ended it")
	}
	if err := h.keeper().Book.Begin("c"); err != nil || !quarantined() {
		t.Errorf("a reboot has ended it: %v", err)
	}
	move("d", "sysctl")
	if quarantined() {
		t.Error("it left the configuration, or what is there is wanted now, and it is quarantined")
	}
	spend()
	if err := h.keeper().Book.Begin("e"); err != nil || quarantined() {
		t.Errorf("a boot of another overlay has not ended it: %v", err)
	}
}

// Whatever a rival does and whenever the agent looks, is restarted or dies between a
// correction and what follows: no setting is corrected more than the budget allows,
// none is quarantined that was not, and quarantine ends only by clear.
func TestAnyRival(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		h := &host{t: t, dir: t.TempDir()}
		made := map[string][]time.Duration{}
		held := map[string]bool{}
		for range 200 {
			h.up += time.Duration(r.IntN(200)) * time.Second
			key := fmt.Sprint("k", r.IntN(3))
			switch r.IntN(20) {
			case 0:
				b := h.keeper().Book
				if ended := b.Clear("sysctl", key); (len(ended) == 1) != held[key] {
					t.Fatalf("seed %d: clear %s: %+v, quarantined %v", seed, key, ended, held[key])
				}
				if err := b.Save(); err != nil {
					t.Fatal(err)
				}
				delete(held, key)
				delete(made, key)
				continue
			case 1: // what a power cut leaves of a write
				if err := os.WriteFile(filepath.Join(h.dir, "."+paths.Corrections+".torn"), []byte("{"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			k := h.keeper()
			d := k.Judge(spec.Drift{Item: "sysctl", Key: key, From: fmt.Sprint(r.IntN(9)), To: "10", Action: spec.ActionChange}, false)
			recent := 0
			for _, at := range made[key] {
				if h.up-at < 10*time.Minute {
					recent++
				}
			}
			switch want := held[key] || recent >= usual; {
			case want != (d.Action == spec.ActionQuarantine):
				t.Fatalf("seed %d at %v: %s with %d corrections, quarantined %v: %+v", seed, h.up, key, recent, held[key], d)
			case want:
				held[key] = true
				if err := k.Book.Save(); err != nil {
					t.Fatal(err)
				}
			default:
				if err := k.Correct([]spec.Drift{d}); err != nil { // and dies, without saying that it is done
					t.Fatal(err)
				}
				made[key] = append(made[key], h.up)
			}
		}
	}
}

// A book that cannot be read is begun again, with an error; the next one is whole.
func TestADamagedBook(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, paths.Corrections), []byte(`{"boot":`), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := Open(dir, "boot")
	if err == nil || !b.Blank() {
		t.Fatalf("%v, %+v", err, b)
	}
	if err := b.Begin("a"); err != nil {
		t.Fatal(err)
	}
	if b, err := Open(dir, "boot"); err != nil || b.Blank() {
		t.Errorf("%v, %+v", err, b)
	}
}

func FuzzOpen(f *testing.F) {
	f.Add(`{"boot":"a","overlay":"b","keys":[{"item":"sysctl","key":"k","want":"1","corrections":[1]}]}`)
	f.Add(`{"keys":[null]}`)
	f.Fuzz(func(t *testing.T, text string) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, paths.Corrections), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		b, _ := Open(dir, "boot") // an error or not, it is a book
		k := &Keeper{Book: b, Rule: new(spec.Overlay).Enforced}
		d := k.Judge(swappiness("1", "2"), false)
		if d.Action != spec.ActionChange && d.Action != spec.ActionQuarantine {
			t.Errorf("%+v", d)
		}
		if err := k.Correct([]spec.Drift{d}); err != nil {
			t.Error(err)
		}
	})
}

// TestGolden: the corrections that a release counted are read by the next one.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/corrections.json", Page: "../../../docs/formats/node-files.md", New: new(pages), Write: json.Marshal,
		Read:  func(data []byte) (any, error) { p := new(pages); return p, json.Unmarshal(data, p) },
		Types: []reflect.Type{reflect.TypeFor[pages](), reflect.TypeFor[history]()}})
}
