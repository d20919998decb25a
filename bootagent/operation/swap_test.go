// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// dock is a yard whose one operation is a swap from root A to root B.
type dock struct {
	*yard
	into  string // what the next boot comes up with
	boots int
	asked bool // a reboot
}

func newDock(t *testing.T) *dock {
	t.Helper()
	y, m := newYard(t)
	d := &dock{yard: y, into: "B"}
	o := m.Operations[0]
	m.Operations = nil
	y.Swap = &Swap{Policy: spec.LayerSwap{Windows: o.Windows, Order: *o.Order}, Maintenance: m, Waits: "B", Runs: "A", Reboot: func(context.Context) error {
		y.seam()
		y.line("reboot")
		d.asked = true
		y.seam()
		return nil
	}}
	return d
}

// up starts the machine again, into what it is to come up with.
func (d *dock) up() {
	d.boots++
	d.asked = false
	d.reboot(fmt.Sprintf("boot-%d", d.boots+1))
	d.Runner = cutRunner{new(noting), d.yard}
	d.Swap.Runs = d.into
	if d.Swap.Waits == d.into {
		d.Swap.Waits = ""
	}
}

// stands looks until the swap stands as it should; state "" is that there is none.
func (d *dock) stands(state spec.OperationState, what, words string) spec.OperationStatus {
	d.t.Helper()
	var s spec.OperationStatus
	for range 60 {
		all, err := d.Look(d.t.Context(), nil)
		if err != nil {
			d.t.Fatal(err)
		}
		if s = (spec.OperationStatus{}); len(all) > 0 {
			s = all[0]
		}
		if s.State == state && s.For == what && strings.Contains(s.Detail, words) {
			return s
		}
		d.rests()
		d.clock = d.clock.Add(20 * time.Second)
	}
	d.t.Fatalf("%+v after %s; want %s for %q (%s)", s, d.trail(), state, what, words)
	return s
}

func (d *dock) empty() bool { return d.free(d.Swap.Maintenance) }

const swapTrail = "when take when drained? drain reboot gates undo release"

// TestASwap goes the way of an operation, and over the reboot: what was taken before it
// is given back after it, when the node is well and has soaked.
func TestASwap(t *testing.T) {
	d := newDock(t)
	d.Swap.Policy.Soak = 600
	d.stands(spec.OperationRunning, "", "the machine reboots")
	d.stands(spec.OperationRunning, "", "the machine reboots")
	if d.empty() || !d.there("drained") {
		t.Errorf("before the boot: %s", d.trail())
	}
	d.up()
	d.gate = Judging
	d.stands(spec.OperationWaiting, spec.ForGates, "a gate")
	d.gate = Well
	if d.stands(spec.OperationRunning, "", "soak"); d.empty() || d.there("drained") {
		t.Errorf("while it soaks: %s", d.trail())
	}
	d.clock = d.clock.Add(600 * time.Second)
	d.stands("", "", "")
	if want := strings.Replace(swapTrail, "undo release", "undo gates release", 1); d.trail() != want || !d.empty() {
		t.Errorf("%s", d.trail())
	}
	if _, err := d.Ask(nil, spec.LayerSwapName, true); err == nil || !strings.Contains(err.Error(), "nothing waits") {
		t.Errorf("asked for nothing: %v", err)
	}
	for _, into := range []string{"A", "B"} { // back, and there again: what was reached is not remembered
		d.Swap.Waits, d.into, d.clock = into, into, d.clock.AddDate(0, 0, 7).Truncate(24*time.Hour).Add(21*time.Hour)
		d.stands(spec.OperationRunning, "", "the machine reboots")
		d.up()
		d.stands(spec.OperationRunning, "", "soak")
		d.clock = d.clock.Add(600 * time.Second)
		d.stands("", "", "")
	}
	if got := strings.Count(d.trail(), "reboot"); got != 3 {
		t.Errorf("%d reboots", got)
	}
}

// TestASwapSaysForWhatItWaits, and until when, and does nothing meanwhile.
func TestASwapSaysForWhatItWaits(t *testing.T) {
	d := newDock(t)
	d.clock = at("2026-11-21T20:00Z")
	if s := d.stands(spec.OperationWaiting, spec.ForWindow, "window sat opens at 2026-11-21 21:00 UTC"); !s.Next.Equal(at("2026-11-21T21:00Z")) || s.Name != "swap" {
		t.Errorf("%+v", s)
	}
	d.clock, d.unset = at("2026-11-21T21:30Z"), true
	d.stands(spec.OperationWaiting, spec.ForClock, "clock")
	d.unset = false
	d.Swap.Busy, d.Swap.Why = spec.ForStaging, "not on the disk"
	d.stands(spec.OperationWaiting, spec.ForStaging, "not on the disk")
	d.Swap.Busy = ""
	d.Swap.Cannot = "nobody would know"
	d.stands(spec.OperationCannot, "", "nobody would know")
	d.Swap.Cannot = ""
	d.Swap.Unknown = errors.New("no such overlay")
	d.stands(spec.OperationCannot, "", "no such overlay")
	d.Swap.Unknown = nil
	d.clock = at("2027-03-05T21:30Z")
	d.stands(spec.OperationWaiting, spec.ForWindow, "the site has to be published again")
	if d.trail() != "" {
		t.Errorf("%s", d.trail())
	}
	d.Remembers = false
	d.stands(spec.OperationCannot, "", "whose drain")
}

// TestASwapWaitsForWhatRuns: a reboot would end it.
func TestASwapWaitsForWhatRuns(t *testing.T) {
	d := newDock(t)
	o := d.runs1("sleep 60")
	m := &spec.Maintenance{Operations: []spec.Operation{o}}
	for range 20 {
		all, err := d.Look(t.Context(), m)
		if err != nil {
			t.Fatal(err)
		}
		if s := swapOf(all); s.For == spec.ForTurn && strings.Contains(s.Detail, "m/long runs") {
			d.end(o)
			if strings.Contains(d.trail(), "reboot") {
				t.Errorf("%s", d.trail())
			}
			return
		}
		d.clock = d.clock.Add(20 * time.Second)
	}
	t.Error("it did not wait")
}

func (d *dock) runs1(text string) spec.Operation {
	o := d.bench.runs(spec.OneShot, text)
	o.Name = "m/long"
	return o
}

func swapOf(all []spec.OperationStatus) (s spec.OperationStatus) {
	for _, o := range all {
		if o.Type == spec.LayerSwapName {
			s = o
		}
	}
	return s
}

// TestASwapThatGoesNowhere: what came up with what it ran before is not tried again, until
// something else waits or an operator asks.
func TestASwapThatGoesNowhere(t *testing.T) {
	d := newDock(t)
	d.into = "A"
	d.stands(spec.OperationRunning, "", "the machine reboots")
	d.up()
	d.stands(spec.OperationFailed, "", "came up with what it ran before")
	d.clock = d.clock.AddDate(0, 0, 7)
	d.stands(spec.OperationFailed, "", "came up with what it ran before")
	if !d.empty() || d.there("drained") || strings.Count(d.trail(), "reboot") != 1 {
		t.Errorf("%s", d.trail())
	}
	d.Swap.Waits = "C"
	d.stands(spec.OperationRunning, "", "the machine reboots")
	d.into = "A"
	d.up()
	d.stands(spec.OperationFailed, "", "came up with what it ran before")
	d.clock = at("2026-12-10T12:00Z")
	if _, err := d.Ask(nil, spec.LayerSwapName, false); err != nil {
		t.Fatal(err)
	}
	d.stands(spec.OperationWaiting, spec.ForWindow, "") // again, in its windows
	if _, err := d.Ask(nil, spec.LayerSwapName, true); err != nil {
		t.Fatal(err)
	}
	d.stands(spec.OperationRunning, "", "the machine reboots") // now
	if strings.Count(d.trail(), "reboot") != 3 {
		t.Errorf("%s", d.trail())
	}
}

// TestASwapIntoSomethingNewer: what was published meanwhile is not a failure, and a root
// that was reached without a boot of the machine is reached.
func TestASwapIntoSomethingNewer(t *testing.T) {
	d := newDock(t)
	d.Gates = nil // then nothing but success gives the slot back
	d.stands(spec.OperationRunning, "", "the machine reboots")
	d.into, d.Swap.Waits = "C", "C"
	d.up()
	d.stands("", "", "")
	if !d.empty() || d.there("drained") {
		t.Errorf("%s", d.trail())
	}
	d = newDock(t)
	d.stands(spec.OperationRunning, "", "the machine reboots")
	d.Swap.Runs, d.Swap.Waits = "B", ""
	d.stands("", "", "")
	if d.trail() != swapTrail || !d.empty() {
		t.Errorf("%s", d.trail())
	}
}

// TestASwapThatIsNone asks for nothing.
func TestASwapThatIsNone(t *testing.T) {
	d := newDock(t)
	d.Swap.Policy.Drain.Exec.Argv = []string{"drain"}
	if all, err := d.Look(t.Context(), nil); err == nil || len(all) != 1 || all[0].State != spec.OperationCannot || d.trail() != "" {
		t.Errorf("%+v, %v, %s", all, err, d.trail())
	}
}

// TestASwapThatGoesBack: the node is well again on what it ran before, so what was
// taken is given back.
func TestASwapThatGoesBack(t *testing.T) {
	d := newDock(t)
	d.stands(spec.OperationRunning, "", "the machine reboots")
	d.up()
	d.gate = Judging
	d.stands(spec.OperationWaiting, spec.ForGates, "")
	d.into = "A"
	d.up()
	d.gate = Well
	d.stands("", "", "")
	if d.trail() != swapTrail || !d.empty() {
		t.Errorf("%s", d.trail())
	}
}

// TestASwapThatBreaksItsNode keeps what it has taken until the node is well.
func TestASwapThatBreaksItsNode(t *testing.T) {
	d := newDock(t)
	d.stands(spec.OperationRunning, "", "the machine reboots")
	d.up()
	d.gate = Unwell
	d.stands(spec.OperationFailed, "", "it keeps its slot of g, and the node stays drained")
	d.clock = d.clock.AddDate(0, 1, 0)
	d.gate = Well
	d.stands("", "", "")
	if !d.empty() || d.there("drained") || strings.Count(d.trail(), "reboot") != 1 {
		t.Errorf("%s", d.trail())
	}
}

// TestASwapThatCouldNotBegin is tried again an hour later.
func TestASwapThatCouldNotBegin(t *testing.T) {
	d := newDock(t)
	d.Swap.Policy.Drain.Exec = d.says("drain", "exit 4")
	s := d.stands(spec.OperationWaiting, spec.ForRetry, "drain: exit status 4")
	if !d.empty() || strings.Contains(d.trail(), "reboot") || s.Next.Before(d.clock.Add(50*time.Minute)) {
		t.Errorf("%+v, %s", s, d.trail())
	}
	d.clock = s.Next
	d.Swap.Policy.Drain.Exec = d.says("drain", "touch drained")
	refuses := errors.New("no")
	reboot := d.Swap.Reboot
	d.Swap.Reboot = func(context.Context) error { return refuses }
	s = d.stands(spec.OperationWaiting, spec.ForRetry, "reboot: no")
	if !d.empty() || d.there("drained") {
		t.Errorf("%s", d.trail())
	}
	d.clock, d.Swap.Reboot = s.Next, reboot
	d.stands(spec.OperationRunning, "", "the machine reboots")
	d.clock = d.clock.Add(rebootTime)
	d.stands(spec.OperationWaiting, spec.ForRetry, "did not reboot within 15m0s")
	if !d.empty() || d.there("drained") || strings.Count(d.trail(), "reboot") != 1 {
		t.Errorf("%s", d.trail())
	}
}

// TestASwapThatSomebodyElseMakes, or takes back, gives back what it had taken.
func TestASwapThatSomebodyElseMakes(t *testing.T) {
	require.Slow(t)
	for _, how := range []string{"rebooted", "withdrawn"} {
		d := newDock(t)
		d.Swap.Policy.Drain.Exec = d.says("drain", "touch drained; sleep 60")
		d.stands(spec.OperationRunning, "", "drained")
		if how == "rebooted" {
			d.up()
		} else {
			d.Swap.Waits = ""
		}
		d.stands("", "", "")
		if !d.empty() || d.there("drained") || strings.Contains(d.trail(), "reboot") {
			t.Errorf("%s: %s", how, d.trail())
		}
	}
}

// TestASwapOfWhichThePowerGoes, before or after each thing that others see, ends: with
// what waited, nothing taken, and the machine rebooted by it once at most.
func TestASwapOfWhichThePowerGoes(t *testing.T) {
	require.Slow(t)
	for cut := 2; ; cut++ {
		d := newDock(t)
		d.cut = cut / 2
		if !d.reaches() {
			if cut < 30 {
				t.Fatalf("only %d calls were cut", cut/2)
			}
			return
		}
		d.cut = 0
		d.Runner.(cutRunner).end()
		killed := cut%2 == 0 && d.boots == 0 // the agent alone ended; else the machine lost its power
		if killed {
			d.Runner = cutRunner{new(noting), d.yard}
		} else {
			d.up()
		}
		if d.reaches() {
			t.Fatal("cut twice")
		}
		if d.there("drained") || !d.empty() || strings.Count(d.trail(), "reboot") > 2 || !killed && strings.Count(d.trail(), "reboot") > 1 {
			t.Errorf("cut at call %d/2: %s (drained %v, free %v)", cut, d.trail(), d.there("drained"), d.empty())
		}
	}
}

// reaches looks, and boots when it is asked to, until nothing is left to do, or the
// power goes.
func (d *dock) reaches() (went bool) {
	defer func() {
		if p := recover(); p != nil {
			if p != errPower {
				panic(p)
			}
			went = true
		}
	}()
	for range 200 {
		all, err := d.Look(d.t.Context(), nil)
		if err != nil {
			d.t.Fatal(err)
		}
		switch {
		case d.asked:
			d.up()
		case len(all) == 0:
			return false
		}
		d.rests()
		d.clock = d.clock.Add(20 * time.Second)
	}
	d.t.Fatalf("it does not end: %s", d.trail())
	return false
}

// TestAYearOfSwaps: whatever waits, and whenever nobody looks, the clock is lost, the
// slot is taken or a reboot comes up with something else: a node reboots in its window
// only, once for what waits, and with a slot.
func TestAYearOfSwaps(t *testing.T) {
	require.Slow(t)
	b := newBench(t)
	r := rand.New(rand.NewPCG(7, 8))
	start := b.clock
	m := saturdays()
	m.Horizon = start.AddDate(0, 0, 330)
	w := m.Windows["sat"]
	w.Intervals = nil
	for d := at("2026-11-21T21:00Z"); d.Before(m.Horizon); d = d.AddDate(0, 0, 7) {
		w.Intervals = append(w.Intervals, spec.Interval{From: d, To: d.Add(4 * time.Hour)})
	}
	m.Windows["sat"] = w
	m.Slots = map[string]spec.Slot{"g": {Max: 1, Directory: filepath.Join(t.TempDir(), "slots")}}
	held := false
	slots := post.Holder{Node: "n"}
	b.Slots = slots
	tried, asked, reached := map[string]int{}, false, 0
	b.Swap = &Swap{Policy: spec.LayerSwap{Windows: []string{"sat"}, Order: spec.Order{Slot: "g", Spread: 3600}}, Maintenance: m, Runs: "0"}
	b.Swap.Reboot = func(context.Context) error {
		inside := false
		for _, i := range w.Intervals {
			inside = inside || !b.clock.Before(i.From) && b.clock.Before(i.To.Add(-30*time.Minute))
		}
		if !inside || b.unset || held {
			t.Errorf("rebooted at %v: in its window %v, clock lost %v, slot with another %v", b.clock, inside, b.unset, held)
		}
		if tried[b.Swap.Waits]++; tried[b.Swap.Waits] > 1 {
			t.Errorf("rebooted at %v for %s again", b.clock, b.Swap.Waits)
		}
		asked = true
		return nil
	}
	other := post.Holder{Node: "other"}
	boot := func() {
		b.Boot = b.clock.String()
		if asked && r.IntN(3) > 0 {
			b.Swap.Runs, b.Swap.Waits = b.Swap.Waits, ""
			reached++
		}
		asked = false
	}
	for n := 1; b.clock.Before(start.AddDate(0, 0, 365)); b.clock = b.clock.Add(time.Duration(1+r.IntN(40)) * time.Minute) {
		if r.IntN(300) == 0 {
			b.Swap.Waits = fmt.Sprint(n) // published
			n++
		}
		if r.IntN(40) == 0 {
			if held {
				if err := other.Release(t.Context(), "g", m.Slots["g"]); err != nil {
					t.Fatal(err)
				}
				held = false
			} else {
				held = other.Take(t.Context(), "g", m.Slots["g"]) == nil
			}
		}
		if r.IntN(400) == 0 {
			b.clock = b.clock.Add(time.Duration(r.IntN(72)) * time.Hour) // it was off
			boot()
		}
		b.unset = r.IntN(50) == 0
		if _, err := b.Look(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		if asked {
			b.clock = b.clock.Add(3 * time.Minute)
			boot()
		}
	}
	if len(tried) < 15 || reached < 8 {
		t.Errorf("%d were tried, %d reached", len(tried), reached)
	}
	b.unset = false
	if s := b.View(nil); b.Swap.Waits != "" && tried[b.Swap.Waits] == 0 && !strings.Contains(s[0].Detail, "published again") {
		t.Errorf("after the horizon: %+v", s)
	}
}
