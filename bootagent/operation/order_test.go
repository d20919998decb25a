// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/stalled"
)

// yard is a bench whose operation takes its whole turn. Each step leaves a line; a
// file says whether the node is drained, and a directory counts slots.
type yard struct {
	*bench
	dir   string
	slots post.Holder
	gate  Judgement
	cut   int // the power goes at this call of a seam; 0 is never
	calls int
}

var errPower = errors.New("the power went")

// seam is passed before and after everything that others see.
func (y *yard) seam() {
	y.calls++
	if y.calls == y.cut {
		panic(errPower)
	}
}

type cutRunner struct {
	*noting
	y *yard
}

func (r cutRunner) Start(ctx context.Context, c process.Command) (string, error) {
	r.y.seam()
	id, err := r.noting.Start(ctx, c)
	r.y.seam()
	return id, err
}

// end ends what was begun: the power is gone, or the agent with all its services.
func (r cutRunner) end() {
	r.y.t.Helper()
	for _, id := range r.begun {
		if err := r.End(id); err != nil {
			r.y.t.Fatal(err)
		}
	}
}

func (y *yard) Take(ctx context.Context, group string, s spec.Slot) error {
	y.seam()
	err := y.slots.Take(ctx, group, s)
	if err == nil {
		y.line("take")
	}
	y.seam()
	return err
}

func (y *yard) Release(ctx context.Context, group string, s spec.Slot) error {
	y.seam()
	err := y.slots.Release(ctx, group, s)
	y.line("release")
	y.seam()
	return err
}

func (y *yard) Judge(context.Context, string) (Judgement, string) {
	y.line("gates")
	return y.gate, "a gate"
}

func (y *yard) State(_ context.Context, unit string) (string, time.Time, error) {
	if unit == "up.service" {
		return "active", time.Time{}, nil
	}
	return "inactive", time.Time{}, nil
}

func (y *yard) line(text string) {
	f, err := os.OpenFile(y.dir+"/trail", os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		y.t.Fatal(err)
	}
	_, err = f.WriteString(text + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		y.t.Fatal(err)
	}
}

// trail returns the steps so far, each once where it stands several times in a row.
func (y *yard) trail() string {
	data, err := os.ReadFile(y.dir + "/trail")
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		y.t.Fatal(err)
	}
	return strings.Join(slices.Compact(strings.Fields(string(data))), " ")
}

func (y *yard) says(name, text string) spec.Command {
	return sh("echo " + name + " >>" + y.dir + "/trail; cd " + y.dir + "; " + text)
}

func newYard(t *testing.T) (*yard, *spec.Maintenance) {
	t.Helper()
	y := &yard{bench: newBench(t), dir: t.TempDir(), slots: post.Holder{Node: "n"}, gate: Well}
	y.Slots, y.Gates, y.Units, y.Root = y, y, y, y.dir
	y.Runner = cutRunner{new(noting), y}
	y.clock = at("2026-11-21T21:30Z")
	check := y.says("check", "test -e acted")
	o := y.bench.runs(spec.OneShot, "")
	o.Disruptive, o.Windows = true, []string{"sat"}
	o.Exec = y.says("act", "touch acted")
	o.Check = &check
	when := y.says("when", "! test -e busy")
	o.Order = &spec.Order{When: []spec.Condition{{Command: &when}, {Unit: "up.service"}, {Absent: "/hold"}}, Slot: "g",
		Drain: &spec.Drain{Check: y.says("drained?", "test -e drained"), Exec: y.says("drain", "touch drained"), Undo: y.says("undo", "rm -f drained")}}
	m := with(o)
	m.Slots = map[string]spec.Slot{"g": {Max: 1, Directory: filepath.Join(y.dir, "slots")}}
	return y, m
}

// there reports whether a file of the world is there.
func (y *yard) there(name string) bool { return exists(filepath.Join(y.dir, name)) }

// free reports whether another node gets the slot.
func (y *yard) free(m *spec.Maintenance) bool {
	other := post.Holder{Node: "other"}
	err := other.Take(y.t.Context(), "g", m.Slots["g"])
	if err == nil {
		err = other.Release(y.t.Context(), "g", m.Slots["g"])
	}
	return err == nil
}

// until looks, half a minute apart, until an operation stands as it should.
func (y *yard) until(m *spec.Maintenance, state spec.OperationState, what, words string) {
	y.t.Helper()
	var s spec.OperationStatus
	for range 60 {
		all, err := y.Look(y.t.Context(), m)
		if err != nil {
			y.t.Fatal(err)
		}
		if s = all[0]; s.State == state && s.For == what && strings.Contains(s.Detail, words) {
			return
		}
		y.rests()
		y.clock = y.clock.Add(20 * time.Second)
	}
	y.t.Fatalf("%+v after %s; want %s for %q (%s)", s, y.trail(), state, what, words)
}

const wholeTrail = "when check take when drained? drain act gates undo release"

func TestOrder(t *testing.T) {
	y, m := newYard(t)
	m.Operations[0].Order.Soak = 600
	y.until(m, spec.OperationRunning, "", "soak")
	if y.free(m) || y.there("drained") || y.trail() != strings.TrimSuffix(wholeTrail, " release") {
		t.Errorf("while it soaks: %s", y.trail())
	}
	if got := y.View(m)[0].Slot; got != "g" {
		t.Errorf("while it soaks it holds a slot of %q", got)
	}
	y.gate = Judging
	y.clock = y.clock.Add(600 * time.Second)
	y.until(m, spec.OperationWaiting, spec.ForGates, "a gate")
	if y.free(m) {
		t.Errorf("the slot was given back before the node was well: %s", y.trail())
	}
	y.gate = Well
	y.until(m, spec.OperationDone, "", "")
	soaked := strings.Replace(wholeTrail, "undo release", "undo gates release", 1)
	if got := y.View(m)[0].Slot; y.trail() != soaked || !y.free(m) || got != "" {
		t.Errorf("%s; slot of %q", y.trail(), got)
	}
	y.until(m, spec.OperationDone, "", "")
	if y.trail() != soaked {
		t.Errorf("again: %s", y.trail())
	}
}

// TestWhatIsDoneTakesNoSlot: others do not wait for a node that has nothing to do.
func TestWhatIsDoneTakesNoSlot(t *testing.T) {
	y, m := newYard(t)
	y.line("touched")
	if err := os.WriteFile(y.dir+"/acted", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	y.until(m, spec.OperationDone, "", "its check says")
	if strings.Contains(y.trail(), "take") || strings.Contains(y.trail(), "drain") {
		t.Errorf("%s", y.trail())
	}
}

// TestEachWaitSaysForWhat, and since when; nothing is held before the slot, and a slot
// is given back where it is not used at once.
func TestEachWaitSaysForWhat(t *testing.T) {
	y, m := newYard(t)
	put := func(name string) {
		if err := os.WriteFile(filepath.Join(y.dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(name string) {
		if err := os.Remove(filepath.Join(y.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	y.clock = at("2026-11-21T20:00Z")
	y.until(m, spec.OperationWaiting, spec.ForWindow, "opens at")
	y.clock = at("2026-11-21T21:00Z")
	y.unset = true
	y.until(m, spec.OperationWaiting, spec.ForClock, "clock")
	y.unset = false
	put("busy")
	y.until(m, spec.OperationWaiting, spec.ForPrecondition, "/bin/sh: exit status 1")
	since := y.View(m)[0].Since
	y.clock = y.clock.Add(time.Minute)
	y.until(m, spec.OperationWaiting, spec.ForPrecondition, "")
	if got := y.View(m)[0].Since; since.IsZero() || !got.Equal(since) {
		t.Errorf("it waits since %v, then since %v", since, got)
	}
	gone("busy")
	put("hold")
	y.until(m, spec.OperationWaiting, spec.ForPrecondition, "/hold exists")
	gone("hold")
	other := post.Holder{Node: "other"}
	if err := other.Take(t.Context(), "g", m.Slots["g"]); err != nil {
		t.Fatal(err)
	}
	y.until(m, spec.OperationWaiting, spec.ForSlot, "held, by other")
	if got := y.View(m)[0]; !got.Since.After(since) || got.Slot != "" {
		t.Errorf("it waits for the slot since %v, and holds one of %q", got.Since, got.Slot)
	}
	m.Operations[0].Order.When = append(m.Operations[0].Order.When, spec.Condition{Unit: "down.service"})
	if err := other.Release(t.Context(), "g", m.Slots["g"]); err != nil {
		t.Fatal(err)
	}
	y.until(m, spec.OperationWaiting, spec.ForPrecondition, "down.service is not active") // after it got the slot
	if !strings.Contains(y.trail(), "take when release") || !y.free(m) || strings.Contains(y.trail(), "drain") {
		t.Errorf("%s", y.trail())
	}
}

// TestASlotThatComesTooLate: what has its slot when its window is closed does not run,
// then or later; the slot is given back.
func TestASlotThatComesTooLate(t *testing.T) {
	y, m := newYard(t)
	other := post.Holder{Node: "other"}
	if err := other.Take(t.Context(), "g", m.Slots["g"]); err != nil {
		t.Fatal(err)
	}
	y.until(m, spec.OperationWaiting, spec.ForSlot, "")
	if err := other.Release(t.Context(), "g", m.Slots["g"]); err != nil {
		t.Fatal(err)
	}
	y.clock = at("2026-11-22T00:30Z") // its startGuard
	y.until(m, spec.OperationWaiting, spec.ForWindow, "closes soon")
	if y.there("acted") || !y.free(m) {
		t.Errorf("%s", y.trail())
	}
	y.clock = at("2026-11-28T21:00Z")
	y.until(m, spec.OperationDone, "", "")
}

// TestAWindowThatClosesWhileTheNodeIsDrained undoes the drain without the act.
func TestAWindowThatClosesWhileTheNodeIsDrained(t *testing.T) {
	y, m := newYard(t)
	m.Operations[0].Order.Drain.Exec = y.says("drain", "touch drained; sleep 60")
	y.until(m, spec.OperationRunning, "", "drained")
	y.clock = at("2026-11-22T02:00Z")
	y.until(m, spec.OperationWaiting, spec.ForWindow, "")
	if y.there("acted") || y.there("drained") || !y.free(m) {
		t.Errorf("%s", y.trail())
	}
}

// TestAnothersDrain is not undone.
func TestAnothersDrain(t *testing.T) {
	y, m := newYard(t)
	if err := os.WriteFile(y.dir+"/drained", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	y.until(m, spec.OperationDone, "", "")
	if !y.there("drained") || y.trail() != "when check take when drained? act gates release" {
		t.Errorf("%s", y.trail())
	}
}

func TestADrainThatFails(t *testing.T) {
	y, m := newYard(t)
	m.Operations[0].Order.Drain.Exec = y.says("drain", "touch drained; exit 4")
	y.until(m, spec.OperationFailed, "", "drain: exit status 4")
	if y.there("acted") || y.there("drained") || !y.free(m) {
		t.Errorf("%s", y.trail())
	}
}

// TestGatesThatFail halt the group: the slot stays with the node and the node drained,
// until it is well.
func TestGatesThatFail(t *testing.T) {
	y, m := newYard(t)
	y.gate = Judging
	y.until(m, spec.OperationWaiting, spec.ForGates, "a gate")
	y.gate = Unwell
	y.until(m, spec.OperationFailed, "", "the node is not well after it: a gate; it keeps its slot of g, and the node stays drained")
	y.reboot("boot-2")
	y.Runner = cutRunner{new(noting), y}
	y.clock = y.clock.Add(30 * 24 * time.Hour)
	y.until(m, spec.OperationFailed, "", "it keeps its slot")
	if y.free(m) || !y.there("drained") {
		t.Errorf("%s", y.trail())
	}
	y.gate = Well
	y.until(m, spec.OperationDone, "", "")
	if !y.free(m) || y.there("drained") || strings.Count(y.trail(), "act") != 1 {
		t.Errorf("%s", y.trail())
	}
}

// TestAnActThatFails: where gates find the node well, the next one may go; where there
// are none, the group halts, and the drain is undone.
func TestAnActThatFails(t *testing.T) {
	for _, gates := range []bool{true, false} {
		y, m := newYard(t)
		if !gates {
			y.Gates = nil
		}
		m.Operations[0].Exec = y.says("act", "exit 3")
		y.until(m, spec.OperationFailed, "", "exit status 3")
		if y.there("drained") || y.free(m) != gates {
			t.Errorf("gates %v: %s", gates, y.trail())
		}
		m.Operations[0].Exec = y.says("act", "touch acted")
		if _, err := y.Ask(m, "m/o", false); err != nil {
			t.Fatal(err)
		}
		y.until(m, spec.OperationDone, "", "")
		if !y.free(m) {
			t.Errorf("gates %v: %s", gates, y.trail())
		}
	}
}

// TestThePowerGoesAnywhere: whatever step is cut, everything is given back in the end,
// nothing runs twice, and what is not known to be done is not called done.
func TestThePowerGoesAnywhere(t *testing.T) {
	require.Slow(t)
	for cut := 1; ; cut++ {
		y, m := newYard(t)
		y.cut = cut
		went := y.powered(m)
		if !went {
			if cut < 15 {
				t.Fatalf("only %d calls were cut", cut)
			}
			return
		}
		y.cut = 0
		y.Runner.(cutRunner).end()
		y.reboot("boot-2")
		y.Runner = cutRunner{new(noting), y}
		for range 60 {
			all, err := y.Look(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			if s := all[0].State; s == spec.OperationDone || s == spec.OperationFailed && y.free(m) {
				break
			}
			y.rests()
			y.clock = y.clock.Add(20 * time.Second)
		}
		s, acts := y.View(m)[0], strings.Count(y.trail(), "act")
		if y.there("drained") || !y.free(m) || acts > 1 || (s.State == spec.OperationDone) != y.there("acted") {
			t.Errorf("cut at call %d: %+v after %s (drained %v, free %v)", cut, s, y.trail(), y.there("drained"), y.free(m))
		}
	}
}

// powered looks until the operation has ended, or the power went.
func (y *yard) powered(m *spec.Maintenance) (went bool) {
	defer func() {
		if p := recover(); p != nil {
			if p != errPower {
				panic(p)
			}
			went = true
		}
	}()
	y.until(m, spec.OperationDone, "", "")
	return false
}

// TestOneAtATime: two operations that disturb never do so together.
func TestOneAtATime(t *testing.T) {
	y, m := newYard(t)
	second := m.Operations[0]
	second.ID, second.Name, second.Check = "sha256:"+strings.Repeat("cd", 32), "m/p", nil
	second.Order = nil // it has no slot, and waits nevertheless
	y.gate = Judging
	y.until(m, spec.OperationWaiting, spec.ForGates, "")
	m.Operations = append(m.Operations, second)
	y.until(m, spec.OperationWaiting, spec.ForGates, "")
	if s := y.View(m)[1]; s.State != spec.OperationWaiting || s.For != spec.ForTurn || !strings.Contains(s.Detail, "m/o disturbs") {
		t.Errorf("%+v", s)
	}
	y.gate = Well
	y.until(m, spec.OperationDone, "", "")
	m.Operations[0], m.Operations[1] = m.Operations[1], m.Operations[0]
	y.until(m, spec.OperationDone, "", "")
}

// TestOneAtATimeWithoutASlot: who has its turn has it while its preconditions are asked
// once more, however long that takes.
func TestOneAtATimeWithoutASlot(t *testing.T) {
	require.Slow(t)
	y, m := newYard(t)
	when := y.says("when", "echo >>asked; test $(wc -l <asked) -lt 2 || until test -e answer; do sleep 0.01; done")
	first := &m.Operations[0]
	first.Check, first.Order = nil, &spec.Order{When: []spec.Condition{{Command: &when}}}
	second := *first
	second.ID, second.Name, second.Order, second.Exec = "sha256:"+strings.Repeat("cd", 32), "m/p", nil, y.says("second", "true")
	for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) { // until it is asked once more
		if _, err := y.Look(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		if asked, _ := os.ReadFile(filepath.Join(y.dir, "asked")); len(asked) == 2 { // not there before the first time
			break
		}
		if time.Now().After(end) {
			t.Fatal("it is not asked once more")
		}
	}
	m.Operations = append(m.Operations, second)
	if _, err := y.Look(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if s := y.View(m)[1]; s.State != spec.OperationWaiting || s.For != spec.ForTurn || !strings.Contains(s.Detail, "m/o disturbs") {
		t.Errorf("%+v after %s", s, y.trail())
	}
	touch(t, filepath.Join(y.dir, "answer"))
	y.until(m, spec.OperationDone, "", "")
	m.Operations[0], m.Operations[1] = m.Operations[1], m.Operations[0]
	y.until(m, spec.OperationDone, "", "")
	if got := strings.ReplaceAll(y.trail(), "gates ", ""); got != "when act second" && got != "when act second gates" {
		t.Errorf("%s", got)
	}
}

// TestWithdrawn: what leaves the overlay in its turn gives back what it took, or says
// that it cannot.
func TestWithdrawn(t *testing.T) {
	y, m := newYard(t)
	y.gate = Judging
	y.until(m, spec.OperationWaiting, spec.ForGates, "")
	changed := *m
	changed.Operations = []spec.Operation{m.Operations[0]}
	changed.Operations[0].ID = "sha256:" + strings.Repeat("ef", 32)
	y.gate = Well
	y.until(&changed, spec.OperationDone, "", "")
	if y.there("drained") || !y.free(m) {
		t.Errorf("changed: %s", y.trail())
	}

	y, m = newYard(t)
	y.gate = Judging
	y.until(m, spec.OperationWaiting, spec.ForGates, "")
	empty := *m
	empty.Operations = nil
	y.until(&empty, spec.OperationCannot, "", "the node is drained for it")
	if !y.free(m) || !y.there("drained") {
		t.Errorf("withdrawn: %s", y.trail())
	}
	y.gate = Well
	y.until(m, spec.OperationDone, "", "")
	if y.there("drained") {
		t.Errorf("published again: %s", y.trail())
	}
}

// TestAReboot keeps the slot until the machine is up again and well.
func TestAReboot(t *testing.T) {
	for _, check := range []bool{true, false} {
		y, m := newYard(t)
		o := &m.Operations[0]
		o.Reboots = true
		if !check {
			o.Check = nil
		}
		y.until(m, spec.OperationRunning, "", "the machine reboots")
		if y.free(m) {
			t.Error("the slot was given back before the reboot")
		}
		y.reboot("boot-2")
		y.Runner = cutRunner{new(noting), y}
		y.gate = Judging
		y.until(m, spec.OperationWaiting, spec.ForGates, "")
		if y.free(m) {
			t.Error("the slot was given back before the gates")
		}
		y.gate = Well
		y.until(m, spec.OperationDone, "", "")
		if !y.free(m) || y.there("drained") || strings.Count(y.trail(), "act") != 1 {
			t.Errorf("%s", y.trail())
		}

		y, m = newYard(t)
		m.Operations[0].Reboots = true
		y.until(m, spec.OperationRunning, "", "the machine reboots")
		y.clock = y.clock.Add(rebootTime)
		y.until(m, spec.OperationFailed, "", "did not reboot")
	}
}

// TestAPreconditionWhoseServerIsGone is one that does not hold, and is said.
func TestAPreconditionWhoseServerIsGone(t *testing.T) {
	y, m := newYard(t)
	y.Root, y.fileTime = "/", time.Second
	m.Operations[0].Order.When = []spec.Condition{{Absent: stalled.Dir(t) + "/runs"}}
	y.until(m, spec.OperationWaiting, spec.ForPrecondition, "no answer within 1s")
}

// TestAClockThatIsSet: neither the time after an act nor that in which a machine has to go
// down is another one where the clock is set meanwhile, or the machine starts over.
func TestAClockThatIsSet(t *testing.T) {
	for _, by := range []time.Duration{-70 * 365 * 24 * time.Hour, 70 * 365 * 24 * time.Hour} {
		y, m := newYard(t)
		m.Operations[0].Order.Soak = 600
		y.until(m, spec.OperationRunning, "", "soak")
		y.clock, y.set = y.clock.Add(by), by
		y.until(m, spec.OperationRunning, "", "soak")
		if y.free(m) {
			t.Errorf("by %v: the slot was given back at once", by)
		}
		y.clock = y.clock.Add(600 * time.Second)
		y.until(m, spec.OperationDone, "", "")
		if !y.free(m) {
			t.Errorf("by %v: the slot is kept", by)
		}

		y, m = newYard(t)
		m.Operations[0].Reboots = true
		y.until(m, spec.OperationRunning, "", "the machine reboots")
		y.clock, y.set = y.clock.Add(by), by
		y.until(m, spec.OperationRunning, "", "the machine reboots")
		y.clock = y.clock.Add(rebootTime)
		y.until(m, spec.OperationFailed, "", "did not reboot")
	}
	y, m := newYard(t)
	m.Operations[0].Order.Soak = 600
	y.until(m, spec.OperationRunning, "", "soak")
	y.set = y.clock.Sub(at("2000-01-01T00:00Z")) // the kernel has just started
	y.reboot("boot-2")
	y.clock = y.clock.Add(300 * time.Second)
	y.until(m, spec.OperationRunning, "", "soak")
	y.clock = y.clock.Add(400 * time.Second)
	y.until(m, spec.OperationDone, "", "")
}

// TestADisklessBoot gives back what it may hold, whatever it remembers: once a boot,
// and when it is well.
func TestADisklessBoot(t *testing.T) {
	y, m := newYard(t)
	y.Remembers = false
	y.until(m, spec.OperationCannot, "", "whose drain")
	y, m = newYard(t)
	y.Remembers, y.gate = false, Judging
	o := &m.Operations[0]
	o.Order.Drain, o.Reboots = nil, true
	if err := y.slots.Take(t.Context(), "g", m.Slots["g"]); err != nil { // by the boot before
		t.Fatal(err)
	}
	y.until(m, spec.OperationWaiting, spec.ForSlot, "not given back yet")
	y.gate = Well
	y.until(m, spec.OperationRunning, "", "the machine reboots")
	steps := slices.DeleteFunc(strings.Fields(y.trail()), func(step string) bool { return step == "gates" }) // they are looked at meanwhile
	if got := strings.Join(slices.Compact(steps), " "); got != "when check release take when act" && got != "when check release when take when act" {
		t.Errorf("%s", got)
	}
	y.Dir += "-new"
	y.reboot("boot-2")
	y.Runner = cutRunner{new(noting), y}
	y.until(m, spec.OperationDone, "", "its check says")
	if !y.free(m) || strings.Count(y.trail(), "act") != 1 {
		t.Errorf("%s", y.trail())
	}
}

// TestASoftRebootKeepsALedgerInMemory: slots of the boot before are given back once, and not
// those that are held over a soft-reboot.
func TestASoftRebootKeepsALedgerInMemory(t *testing.T) {
	y, m := newYard(t)
	y.Remembers, y.gate = false, Well
	if err := y.steady(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	before := y.trail()
	y.Boot = "the next root"
	if err := y.steady(t.Context(), m); err != nil || !strings.Contains(before, "release") || y.trail() != before {
		t.Errorf("%q, then %q, %v", before, y.trail(), err)
	}
	y.Dir += "-new"
	if err := y.steady(t.Context(), m); err != nil || strings.Count(y.trail(), "release") != 2*strings.Count(before, "release") {
		t.Errorf("another boot: %q, %v", y.trail(), err)
	}
}

// TestThePartOfAWindow: nodes do not all begin when it opens, each always at its time.
func TestThePartOfAWindow(t *testing.T) {
	y, m := newYard(t)
	o := &m.Operations[0]
	o.Order.Spread = 3600
	y.clock = at("2026-11-21T21:00Z")
	y.until(m, spec.OperationWaiting, spec.ForTurn, "part of the window begins at")
	y.clock = at("2026-11-21T21:00Z").Add(y.part(o.ID, 3600) - time.Second)
	y.until(m, spec.OperationWaiting, spec.ForTurn, "part of the window")
	if y.trail() != "" {
		t.Errorf("%s", y.trail())
	}
	y.clock = at("2026-11-21T21:00Z").Add(y.part(o.ID, 3600))
	y.until(m, spec.OperationDone, "", "")
}

// TestCronWaitsForItsSlot for as long as its window is open, and is missed then.
func TestCronWaitsForItsSlot(t *testing.T) {
	for _, late := range []bool{false, true} {
		y, m := newYard(t)
		o := &m.Operations[0]
		o.Type, o.Check, o.Runs = spec.Cron, nil, []time.Time{at("2026-11-21T22:00Z")}
		other := post.Holder{Node: "other"}
		if err := other.Take(t.Context(), "g", m.Slots["g"]); err != nil {
			t.Fatal(err)
		}
		y.until(m, spec.OperationScheduled, "", "")
		y.clock = at("2026-11-21T22:00Z")
		y.until(m, spec.OperationWaiting, spec.ForSlot, "")
		y.clock = at("2026-11-21T23:30Z")
		y.until(m, spec.OperationWaiting, spec.ForSlot, "")
		if late {
			y.clock = at("2026-11-22T02:00Z")
			y.until(m, spec.OperationScheduled, "", "")
		}
		if err := other.Release(t.Context(), "g", m.Slots["g"]); err != nil {
			t.Fatal(err)
		}
		y.until(m, spec.OperationScheduled, "", "")
		if s := y.View(m)[0]; y.there("acted") == late || (s.Missed == 1) != late || !y.free(m) {
			t.Errorf("late %v: %+v, %s", late, s, y.trail())
		}
	}
}
