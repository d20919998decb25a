// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// bench is a node with a clock of its own, and a file that each run adds a line to.
type bench struct {
	t *testing.T
	*Engine
	clock time.Time
	unset bool          // the clock is not synchronised
	set   time.Duration // by which the clock was set since it started
	ran   string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	b := &bench{t: t, clock: at("2026-11-21T12:00Z"), ran: filepath.Join(dir, "ran")}
	b.Engine = &Engine{Dir: filepath.Join(dir, "ops"), Node: "n", Boot: "boot-1", Remembers: true, Runner: new(noting),
		Clock: Clock{Now: func() time.Time { return b.clock }, Up: func() time.Duration { return b.clock.Sub(at("2000-01-01T00:00Z")) - b.set }, Synchronised: func() bool { return !b.unset }}, Record: func(string, spec.Operation, string) {}}
	return b
}

func at(s string) time.Time {
	t, err := time.Parse("2006-01-02T15:04Z07:00", s)
	if err != nil {
		panic(err)
	}
	return t
}

// noting notes what it began.
type noting struct {
	process.Group
	begun []string
}

func (n *noting) Start(ctx context.Context, c process.Command) (string, error) {
	id, err := n.Group.Start(ctx, c)
	n.begun = append(n.begun, id)
	return id, err
}

func (n *noting) busy() bool { return slices.ContainsFunc(n.begun, n.Running) }

// rests waits until what was begun is over: on a busy machine that takes longer, and not
// more looks.
func (b *bench) rests() {
	b.t.Helper()
	for end := time.Now().Add(5 * time.Minute); b.Runner.(interface{ busy() bool }).busy(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			b.t.Fatal("what was begun never ends")
		}
	}
}

// reboot is another boot: nothing of the last one runs.
func (b *bench) reboot(name string) {
	b.Boot, b.Runner = name, new(noting)
}

// runs is an operation that notes that it ran, and then does what text says.
func (b *bench) runs(kind, text string) spec.Operation {
	return spec.Operation{ID: "sha256:" + strings.Repeat("ab", 32), Name: "m/o", Type: kind,
		Action: spec.Action{Exec: sh("echo ran >>" + b.ran + "; " + text)}}
}

func sh(text string) spec.Command {
	return spec.Command{Argv: []string{"/bin/sh", "-c", text}, Timeout: 20}
}

func saturdays() *spec.Maintenance {
	m := &spec.Maintenance{Horizon: at("2027-03-01T00:00Z"), Windows: map[string]spec.Window{}}
	w := spec.Window{StartGuard: 1800, Intervals: []spec.Interval{}}
	for d := at("2026-11-21T21:00Z"); d.Before(m.Horizon); d = d.AddDate(0, 0, 7) {
		w.Intervals = append(w.Intervals, spec.Interval{From: d, To: d.Add(4 * time.Hour)})
	}
	m.Windows["sat"] = w
	return m
}

func with(o spec.Operation) *spec.Maintenance {
	m := saturdays()
	m.Operations = []spec.Operation{o}
	return m
}

// look looks until nothing runs, and returns where the operation stands.
func (b *bench) look(m *spec.Maintenance) spec.OperationStatus {
	b.t.Helper()
	for range 20 {
		all, err := b.Look(b.t.Context(), m)
		if err != nil {
			b.t.Fatal(err)
		}
		if view := b.View(m); view[0] != all[0] && all[0].State != spec.OperationRunning {
			b.t.Errorf("Look says %+v, View %+v", all[0], view[0])
		}
		if asks := b.Runner.(interface{ busy() bool }).busy(); all[0].State != spec.OperationRunning && !asks {
			return all[0]
		}
		b.rests()
	}
	b.t.Fatal("it never ended")
	return spec.OperationStatus{}
}

// want looks at a time, and wants a state, words of the detail, and how often it ran so far.
func (b *bench) want(when string, m *spec.Maintenance, state spec.OperationState, words string, ran int) {
	b.t.Helper()
	if when != "" {
		b.clock = at(when)
	}
	s := b.look(m)
	text, err := os.ReadFile(b.ran)
	if err != nil && !os.IsNotExist(err) {
		b.t.Fatal(err)
	}
	if n := strings.Count(string(text), "ran"); s.State != state || !strings.Contains(s.Detail, words) || n != ran {
		b.t.Errorf("%s: %s (%s), ran %d times; want %s (%s), %d", b.clock.Format("Mon 01-02 15:04"), s.State, s.Detail, n, state, words, ran)
	}
}

func TestOnceIsOnce(t *testing.T) {
	b := newBench(t)
	m := with(b.runs(spec.OneShot, ""))
	b.want("", m, spec.OperationDone, "", 1)
	b.want("2026-11-22T12:00Z", m, spec.OperationDone, "", 1)
	b.reboot("boot-2")
	b.want("2026-11-23T12:00Z", m, spec.OperationDone, "", 1)
	if _, err := b.Ask(m, "m/o", false); err != nil {
		t.Fatal(err)
	}
	b.want("", m, spec.OperationDone, "", 2)
	if _, err := b.Ask(m, "m/x", false); err == nil {
		t.Error("an operation that there is not is asked for")
	}
}

func TestOnceInItsWindow(t *testing.T) {
	b := newBench(t)
	o := b.runs(spec.OneShot, "")
	o.Windows = []string{"sat"}
	m := with(o)
	b.want("2026-11-21T20:59Z", m, spec.OperationWaiting, "window sat opens at 2026-11-21 21:00 UTC", 0)
	b.unset = true
	b.want("2026-11-21T21:00Z", m, spec.OperationWaiting, "clock", 0)
	b.unset = false
	b.want("2026-11-22T00:30Z", m, spec.OperationWaiting, "closes soon", 0)
	b.want("2026-11-22T01:00Z", m, spec.OperationWaiting, "opens at 2026-11-28 21:00", 0)
	b.want("2027-03-05T01:00Z", m, spec.OperationWaiting, "published again", 0)
	b.want("2026-11-29T00:29Z", m, spec.OperationDone, "", 1)
}

func TestAskedForNowNeedsNoWindow(t *testing.T) {
	b := newBench(t)
	o := b.runs(spec.OneShot, "")
	o.Windows = []string{"sat"}
	m := with(o)
	b.want("2026-11-21T12:00Z", m, spec.OperationWaiting, "", 0)
	if _, err := b.Ask(m, "m/o", true); err != nil {
		t.Fatal(err)
	}
	b.want("", m, spec.OperationDone, "", 1)
	b.want("2026-11-21T22:00Z", m, spec.OperationDone, "", 1)
}

// TestAskedForWhileItRuns: the service has begun it in the moment in which a person asks for
// it. It does not run a second time for that, neither behind the first nor after a power cut.
func TestAskedForWhileItRuns(t *testing.T) {
	for _, cut := range []bool{false, true} {
		b := newBench(t)
		end := filepath.Join(t.TempDir(), "end")
		o := b.runs(spec.OneShot, "until test -e "+end+"; do sleep 0.01; done")
		m := with(o)
		if all, err := b.Look(t.Context(), m); err != nil || all[0].State != spec.OperationRunning {
			t.Fatal(all, err)
		}
		if runs, err := b.Ask(m, "m/o", true); err != nil || !runs {
			t.Errorf("asked for while it runs: %v, %v", runs, err)
		}
		touch(t, end)
		b.rests()
		if cut {
			b.reboot("boot-2")
			b.want("", m, spec.OperationFailed, "interrupted", 1)
			continue
		}
		b.want("", m, spec.OperationDone, "", 1)
	}
}

// TestAnEndThatCannotBeWrittenIsAskedAgain: a disk that fails in that moment does not make a run
// one that was cut.
func TestAnEndThatCannotBeWrittenIsAskedAgain(t *testing.T) {
	b := newBench(t)
	m := with(b.runs(spec.OneShot, ""))
	record := filepath.Join(b.dir(m.Operations[0]), "record.json")
	aside, failed := record+".aside", false
	b.Record = func(event string, _ spec.Operation, _ string) {
		if event == string(spec.OperationDone) && !failed {
			failed = true
			if err := errors.Join(os.Rename(record, aside), os.MkdirAll(record+"/taken", 0o700)); err != nil {
				t.Error(err)
			}
		}
	}
	for range 2 {
		if _, err := b.Look(t.Context(), m); (err != nil) != failed {
			t.Fatalf("the end was written, or was not: %v", err)
		}
		b.rests()
	}
	if err := errors.Join(os.RemoveAll(record), os.Rename(aside, record)); err != nil {
		t.Fatal(err)
	}
	b.want("", m, spec.OperationDone, "", 1)
}

func TestFailuresAreRetriedWithPauses(t *testing.T) {
	b := newBench(t)
	o := b.runs(spec.OneShot, "exit 3")
	o.Retries, o.Backoff = 2, 600
	m := with(o)
	b.want("2026-11-21T12:00Z", m, spec.OperationWaiting, "exit status 3; the next attempt is at 2026-11-21 12:10", 1)
	b.want("2026-11-21T12:09Z", m, spec.OperationWaiting, "", 1)
	b.want("2026-11-21T12:10Z", m, spec.OperationWaiting, "12:30", 2)
	b.want("2026-11-21T12:30Z", m, spec.OperationFailed, "exit status 3", 3)
	b.want("2026-12-21T12:30Z", m, spec.OperationFailed, "exit status 3", 3)
}

// TestAOneShotThatRebootsDoesNotLoop: interrupted is not done, and not repeated
// either; with a check it is judged after the reboot.
func TestAOneShotThatRebootsDoesNotLoop(t *testing.T) {
	for _, c := range []struct {
		name    string
		check   string
		memory  bool
		state   spec.OperationState
		detail  string
		runs    int
		forgets bool
	}{
		{name: "with a memory", memory: true, state: spec.OperationFailed, detail: "interrupted", runs: 1},
		{name: "judged as done", memory: true, check: "exit 0", state: spec.OperationDone, runs: 1},
		{name: "judged as not done", memory: true, check: "exit 1", state: spec.OperationFailed, detail: "exit status 1", runs: 1},
		{name: "without a memory", forgets: true, state: spec.OperationCannot, detail: "no ledger", runs: 0},
		{name: "without a memory, judged as done", forgets: true, check: "exit 0", state: spec.OperationDone, detail: "check", runs: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t)
			b.Remembers = c.memory
			o := b.runs(spec.OneShot, "sleep 60")
			o.Disruptive = true
			if c.check != "" { // it says yes when it ran
				k := sh("test -e " + b.ran + " || exit 9; " + c.check)
				o.Check = &k
			}
			m := with(o)
			for end := time.Now().Add(5 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
				if all, err := b.Look(t.Context(), m); err != nil || all[0].State == spec.OperationCannot || b.says() {
					break
				}
				if time.Now().After(end) {
					t.Fatal("it never says that it runs")
				}
			}
			b.end(o)
			b.reboot("boot-2")
			if c.forgets {
				b.Dir += "-new"
			}
			b.want("2026-11-21T12:05Z", m, c.state, c.detail, c.runs)
			b.want("2026-11-22T12:05Z", m, c.state, c.detail, c.runs)
		})
	}
}

// says reports whether what runs has said so: its file is there before its line.
func (b *bench) says() bool {
	text, err := os.ReadFile(b.ran)
	return err == nil && strings.HasSuffix(string(text), "\n")
}

func touch(t *testing.T, name string) {
	t.Helper()
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return err == nil
}

// end kills what runs, as a power cut does: nobody notes anything.
func (b *bench) end(o spec.Operation) {
	r, err := b.load(o)
	if err != nil {
		b.t.Fatal(err)
	}
	if r.Unit != "" {
		if err := b.Runner.End(r.Unit); err != nil {
			b.t.Fatal(err)
		}
	}
}

func TestAClosingWindowStopsWhatRuns(t *testing.T) {
	for _, c := range []struct{ onClose, detail, text string }{{"stop", "its window closed", "sleep 300"}, {"", "", "until test -e closed; do sleep 0.01; done"}} {
		b := newBench(t)
		dir := t.TempDir()
		o := b.runs(spec.OneShot, "cd "+dir+"; "+c.text)
		o.Windows = []string{"sat"}
		m := with(o)
		w := m.Windows["sat"]
		w.OnClose = c.onClose
		m.Windows["sat"] = w
		b.clock = at("2026-11-21T22:00Z")
		if all, err := b.Look(t.Context(), m); err != nil || all[0].State != spec.OperationRunning {
			t.Fatalf("%+v, %v", all, err)
		}
		b.clock = at("2026-11-22T01:00Z")
		if c.onClose == "" {
			touch(t, dir+"/closed")
		}
		if got := b.look(m); (got.State == spec.OperationFailed) != (c.onClose == "stop") || !strings.Contains(got.Detail, c.detail) {
			t.Errorf("%q: %+v", c.onClose, got)
		}
	}
}

func TestTheClock(t *testing.T) {
	b := newBench(t)
	o := b.runs(spec.Cron, "")
	for d := at("2026-11-20T03:00Z"); d.Before(at("2026-12-01T00:00Z")); d = d.AddDate(0, 0, 1) {
		o.Runs = append(o.Runs, d)
	}
	m := with(o)
	b.want("2026-11-21T12:00Z", m, spec.OperationScheduled, "", 0) // what was before is not this node's
	b.want("2026-11-22T02:59Z", m, spec.OperationScheduled, "", 0)
	b.want("2026-11-22T03:00Z", m, spec.OperationScheduled, "", 1)
	b.want("2026-11-22T03:01Z", m, spec.OperationScheduled, "", 1)
	b.want("2026-11-23T03:11Z", m, spec.OperationScheduled, "", 1) // too late
	if s := b.look(m); s.Missed != 1 || s.Next != at("2026-11-24T03:00Z") {
		t.Errorf("%+v", s)
	}
	b.unset = true
	b.want("2026-11-24T03:00Z", m, spec.OperationWaiting, "clock", 1)
	b.unset = false
	b.want("2026-11-24T03:05Z", m, spec.OperationScheduled, "", 2)
	b.reboot("boot-2")
	b.want("2026-11-27T12:00Z", m, spec.OperationScheduled, "", 2)
	if s := b.look(m); s.Missed != 4 {
		t.Errorf("%+v", s)
	}
	m.Operations[0].CatchUp = true
	b.want("2026-11-30T12:00Z", m, spec.OperationScheduled, "", 3) // three were missed: one run
	if s := b.look(m); s.Missed != 6 {
		t.Errorf("%+v", s)
	}
	b.clock = at("2099-01-01T00:00Z") // a clock that went astray
	b.look(m)
	b.clock = at("2026-11-30T13:00Z")
	m.Operations[0].Runs = append(m.Operations[0].Runs, at("2026-12-02T03:00Z"))
	b.want("2026-11-30T13:01Z", m, spec.OperationScheduled, "", 3)
	b.want("2026-12-02T03:00Z", m, spec.OperationScheduled, "", 4)
}

func TestACronJobWaitsForItsWindow(t *testing.T) {
	b := newBench(t)
	o := b.runs(spec.Cron, "")
	o.Windows, o.Runs = []string{"sat"}, []time.Time{at("2026-11-21T20:55Z"), at("2026-11-22T12:00Z")}
	m := with(o)
	b.want("2026-11-21T20:00Z", m, spec.OperationScheduled, "", 0)
	b.want("2026-11-21T20:55Z", m, spec.OperationWaiting, "opens at", 0)
	b.want("2026-11-21T21:00Z", m, spec.OperationScheduled, "", 1) // still on time
	b.want("2026-11-22T12:00Z", m, spec.OperationWaiting, "", 1)
	b.want("2026-11-22T12:11Z", m, spec.OperationScheduled, "", 1)
	if s := b.look(m); s.Missed != 1 {
		t.Errorf("%+v", s)
	}
	m.Operations[0].CatchUp = true
	m.Operations[0].Runs = append(m.Operations[0].Runs, at("2026-11-23T12:00Z"))
	b.want("2026-11-23T12:00Z", m, spec.OperationWaiting, "2026-11-28 21:00", 1)
	b.want("2026-11-28T21:00Z", m, spec.OperationScheduled, "", 2)
}

// TestNeverTwoAtOnce starts nothing while a run goes on, however often its time comes.
func TestNeverTwoAtOnce(t *testing.T) {
	b := newBench(t)
	over := filepath.Join(t.TempDir(), "over")
	o := b.runs(spec.Cron, "until test -e "+over+"; do sleep 0.01; done")
	o.Runs = []time.Time{at("2026-11-21T13:00Z"), at("2026-11-21T13:01Z"), at("2026-11-21T13:02Z")}
	m := with(o)
	b.want("2026-11-21T12:00Z", m, spec.OperationScheduled, "", 0)
	for minute := range 3 {
		b.clock = at("2026-11-21T13:00Z").Add(time.Duration(minute) * time.Minute)
		if all, err := b.Look(t.Context(), m); err != nil || all[0].State != spec.OperationRunning {
			t.Fatalf("%+v, %v", all, err)
		}
	}
	touch(t, over)
	if s := b.look(m); s.Attempts != 1 || s.Missed != 1 {
		t.Errorf("%+v", s) // the second run is on time, one between was missed
	}
	b.want("", m, spec.OperationScheduled, "", 2)
}

func TestADamagedLedgerRunsNothing(t *testing.T) {
	b := newBench(t)
	o := b.runs(spec.OneShot, "")
	m := with(o)
	b.want("", m, spec.OperationDone, "", 1)
	if err := os.WriteFile(filepath.Join(b.dir(o), "record.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := b.Look(t.Context(), m)
	if err == nil || all[0].State != spec.OperationCannot || !strings.Contains(all[0].Detail, "damaged") {
		t.Errorf("%+v, %v", all, err)
	}
	if text, err := os.ReadFile(b.ran); err != nil || string(text) != "ran\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// TestACheckThatCannotBeAsked: what is not known to be undone is not done again.
func TestACheckThatCannotBeAsked(t *testing.T) {
	for text, ran := range map[string]int{"exit 1": 1, "exit 125": 1, "exit 126": 0, "exec /no/such/program": 0, "kill -KILL $$": 0} {
		b := newBench(t)
		o := b.runs(spec.OneShot, "")
		k := sh(text)
		o.Check = &k
		state := spec.OperationDone
		if ran == 0 {
			state = spec.OperationFailed
		}
		b.want("", with(o), state, "", ran)
	}
}

// TestAClockThatIsPutBack repeats nothing.
func TestAClockThatIsPutBack(t *testing.T) {
	b := newBench(t)
	o := b.runs(spec.Cron, "")
	o.Runs = []time.Time{at("2026-11-22T03:00Z"), at("2026-11-23T03:00Z")}
	m := with(o)
	b.want("2026-11-21T12:00Z", m, spec.OperationScheduled, "", 0)
	b.want("2026-11-22T03:00Z", m, spec.OperationScheduled, "", 1)
	b.want("2026-11-22T02:30Z", m, spec.OperationScheduled, "", 1)
	b.want("2026-11-22T03:00Z", m, spec.OperationScheduled, "", 1)
	b.want("2026-11-23T03:00Z", m, spec.OperationScheduled, "", 2)
}

// TestWhatOthersPutIntoTheLedger: a state disk that was in other hands has the agent
// write nowhere else, read no more than a record, and end no service.
func TestWhatOthersPutIntoTheLedger(t *testing.T) {
	elsewhere := t.TempDir()
	for name, spoil := range map[string]func(b *bench, dir string) error{
		"a link for the ledger": func(b *bench, dir string) error { return os.Symlink(elsewhere, b.Dir) },
		"a link for a directory": func(b *bench, dir string) error {
			return errors.Join(os.Mkdir(b.Dir, 0o700), os.Symlink(elsewhere, dir))
		},
		"a large record": func(b *bench, dir string) error {
			return errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "record.json"), make([]byte, 1<<20), 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			o := b.runs(spec.OneShot, "")
			if err := spoil(b, b.dir(o)); err != nil {
				t.Fatal(err)
			}
			if all, err := b.Look(t.Context(), with(o)); err == nil || all[0].State != spec.OperationCannot || exists(b.ran) {
				t.Errorf("%+v, %v", all, err)
			}
		})
	}
	if left, err := os.ReadDir(elsewhere); err != nil || len(left) > 0 {
		t.Errorf("written elsewhere: %v, %v", left, err)
	}

	b := newBench(t)
	o := b.runs(spec.OneShot, "")
	o.Windows = []string{"sat"}
	m := with(o)
	w := m.Windows["sat"]
	w.OnClose = "stop"
	m.Windows["sat"] = w
	victim, err := b.Runner.(*noting).Group.Start(t.Context(), process.Command{Args: []string{"/bin/sleep", "60"}, Dir: "/", Log: filepath.Join(elsewhere, "log")})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.save(o, record{ID: o.ID, State: spec.OperationRunning, Phase: acting, Boot: "a boot that was guessed", Unit: victim}); err != nil {
		t.Fatal(err)
	}
	b.want("", m, spec.OperationFailed, "interrupted", 0)
	if !b.Runner.Running(victim) {
		t.Error("what a record names was ended")
	}
	if err := b.Runner.End(victim); err != nil {
		t.Error(err)
	}
}

// TestWhatIsNoOperation does not run, and ends nothing.
func TestWhatIsNoOperation(t *testing.T) {
	for name, spoil := range map[string]func(o *spec.Operation){
		"id": func(o *spec.Operation) { o.ID = "sha256:../../x" }, "no id": func(o *spec.Operation) { o.ID = "" },
		"program": func(o *spec.Operation) { o.Exec.Argv = nil }, "timeout": func(o *spec.Operation) { o.Exec.Timeout = 0 }, "type": func(o *spec.Operation) { o.Type = "often" },
	} {
		b := newBench(t)
		o := b.runs(spec.OneShot, "")
		spoil(&o)
		if all, err := b.Look(t.Context(), with(o)); err == nil || all[0].State != spec.OperationCannot || exists(b.ran) {
			t.Errorf("%s: %+v, %v", name, all, err)
		}
		if view := b.View(with(o)); view[0].State != spec.OperationCannot {
			t.Errorf("%s: %+v", name, view)
		}
	}
}

func TestJitterIsANodesOwn(t *testing.T) {
	b := newBench(t)
	o := b.runs(spec.Cron, "")
	o.Jitter = 3600
	parts := map[time.Duration]bool{}
	for n := range 100 {
		b.Node = strings.Repeat("x", n)
		d := b.part(o.ID, o.Jitter)
		if d != b.part(o.ID, o.Jitter) || d < 0 || d >= time.Hour {
			t.Fatalf("%v", d)
		}
		parts[d] = true
	}
	if len(parts) < 80 {
		t.Errorf("%d parts of 100 nodes", len(parts))
	}
}

// TestGolden: what a release wrote of an operation is read by the next one.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/record.json", Page: "../../docs/formats/node-files.md", New: new(record), Write: json.Marshal,
		Read:  func(data []byte) (any, error) { r := new(record); return r, json.Unmarshal(data, r) },
		Types: []reflect.Type{reflect.TypeFor[record](), reflect.TypeFor[turn]()}})
}
