// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// witness runs commands, and sees when each begins and ends.
type witness struct {
	process.Group
	began func()
	live  int
}

func (w *witness) Start(ctx context.Context, c process.Command) (string, error) {
	id, err := w.Group.Start(ctx, c)
	if err == nil {
		w.began()
		w.live++
	}
	return id, err
}

func (w *witness) Wait(ctx context.Context, id string) error {
	w.live--
	return w.Group.Wait(ctx, id)
}

// TestFourHundredDays runs a node for 400 days of a simulated clock, with reboots, a
// clock that is lost, and times at which nobody looks: an operation never runs outside
// its window, never twice for one time, never beside itself, and a oneShot runs once.
func TestFourHundredDays(t *testing.T) {
	require.Slow(t)
	b := newBench(t)
	r := rand.New(rand.NewPCG(5, 6))
	start := at("2026-11-21T12:00Z")
	m := &spec.Maintenance{Horizon: start.AddDate(0, 0, 390), Windows: map[string]spec.Window{}}
	nightly, once := b.runs(spec.Cron, ""), b.runs(spec.OneShot, "")
	once.ID, once.Name, once.Windows = "sha256:"+"cd"+nightly.ID[9:], "m/once", []string{"sat"}
	nightly.Windows, nightly.Jitter, nightly.CatchUp = []string{"sat"}, 7200, true
	once.Exec.Argv, nightly.Exec.Argv = []string{"/bin/true"}, []string{"/bin/true"}
	var w spec.Window
	w.StartGuard = 1800
	for d := start; d.Before(m.Horizon); d = d.AddDate(0, 0, 1) {
		if d.Weekday() == time.Saturday {
			w.Intervals = append(w.Intervals, spec.Interval{From: d.Add(9 * time.Hour), To: d.Add(13 * time.Hour)})
		}
		nightly.Runs = append(nightly.Runs, d.Add(10*time.Hour))
	}
	m.Windows["sat"], m.Operations = w, []spec.Operation{nightly, once}

	started := map[time.Time]int{}
	watch := &witness{}
	watch.began = func() {
		started[b.clock]++
		inside := false
		for _, i := range w.Intervals {
			inside = inside || !b.clock.Before(i.From) && b.clock.Before(i.To.Add(-30*time.Minute))
		}
		if !inside {
			t.Errorf("started at %v, outside its window", b.clock)
		}
		if b.unset {
			t.Errorf("started at %v by a clock that is not synchronised", b.clock)
		}
		if watch.live > 1 {
			t.Errorf("%d runs at %v", watch.live, b.clock)
		}
	}
	b.Runner = watch
	runs := 0
	for b.clock = start; b.clock.Before(start.AddDate(0, 0, 400)); b.clock = b.clock.Add(time.Duration(1+r.IntN(40)) * time.Minute) {
		if r.IntN(400) == 0 {
			b.clock = b.clock.Add(time.Duration(r.IntN(72)) * time.Hour) // it was off
			b.Boot = b.clock.String()
		}
		b.unset = r.IntN(50) == 0
		for busy := true; busy; {
			all, err := b.Look(t.Context(), m)
			if err != nil {
				t.Fatal(err)
			}
			busy = all[0].State == spec.OperationRunning || all[1].State == spec.OperationRunning
		}
	}
	for _, n := range started {
		runs += n
	}
	saturdays := len(w.Intervals)
	cron, err := b.load(nightly)
	if err != nil {
		t.Fatal(err)
	}
	if runs < saturdays*3/4 || runs > 2*saturdays+1 { // what was missed in the week, and that night's own
		t.Errorf("%d runs in %d windows", runs, saturdays)
	}
	if total := int64(runs-1) + cron.Missed; total > int64(len(nightly.Runs)) {
		t.Errorf("%d runs and %d missed of %d times", runs-1, cron.Missed, len(nightly.Runs))
	}
	if last := b.View(m); last[1].State != spec.OperationDone || last[0].State != spec.OperationWaiting {
		t.Errorf("in the end %+v", last)
	}
}

type unitState struct {
	state string
	err   error
}

func (u unitState) State(context.Context, string) (string, time.Time, error) {
	return u.state, at("2026-11-21T09:00Z"), u.err
}

// TestWhyNoClock: what waits for a window says what sets no clock.
func TestWhyNoClock(t *testing.T) {
	b := newBench(t)
	b.unset, b.Root, b.Servers = true, t.TempDir(), []string{"a.example.org", "192.0.2.1"}
	m := &spec.Maintenance{Windows: map[string]spec.Window{"w": {}}, Operations: []spec.Operation{{ID: "sha256:" + strings.Repeat("1", 64), Name: "x", Type: spec.OneShot, Windows: []string{"w"}, Action: spec.Action{Exec: spec.Command{Argv: []string{"/bin/true"}, Timeout: 60}}}}}
	want := func(text string) {
		t.Helper()
		if got := b.View(m); len(got) != 1 || got[0].For != spec.ForClock || got[0].Detail != "the clock is not synchronised: "+text {
			t.Errorf("%+v, want %q", got, text)
		}
	}
	want("this system has none of systemd-timesyncd, chrony, ntpsec")
	dir := filepath.Join(b.Root, "usr/lib/systemd/system")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "chrony.service"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	want("chrony.service cannot be asked without systemd")
	b.Units = unitState{err: errors.New("look at chrony.service: gone")}
	want("look at chrony.service: gone")
	b.Units = unitState{state: "inactive"}
	want("chrony.service is not active")
	b.Units = unitState{state: "active"}
	want("no time that chrony.service accepts came from a.example.org, 192.0.2.1 since it started, at 2026-11-21 09:00 UTC")
	own, part := filepath.Join(b.Root, "etc/chrony/chrony.conf"), filepath.Join(b.Root, "etc/chrony/conf.d/x.conf")
	if err := errors.Join(os.MkdirAll(filepath.Dir(part), 0o755), os.WriteFile(own, []byte("server a iburst"), 0o644), os.WriteFile(part, []byte("makestep 1 3\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	want("chrony.service does not tell the kernel: rtcsync is missing in /etc/chrony/chrony.conf")
	if err := os.WriteFile(part, []byte("rtcsync\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.Servers = nil
	want("no time that chrony.service accepts came from its servers since it started, at 2026-11-21 09:00 UTC")
}
