// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node/stacked"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
)

// still is a clock that stands, and a log of which nothing is read.
type still struct{ synchronised bool }

func (still) Up() time.Duration                          { return time.Minute }
func (still) Now() time.Time                             { return time.Unix(1000, 0) }
func (s still) Synchronised() bool                       { return s.synchronised }
func (still) Record(string, ...events.Field)             {}
func (still) RecordChanges(items.Result, uint64, string) {}
func (still) Note(state.Generation, error, spec.Event)   {}
func (still) Say(string, ...any)                         {}

func gen(n uint64, layer string) state.Generation {
	return state.Generation{Generation: n, Epoch: 1, Overlay: fmt.Sprint(n), Layer: layer}
}

// running returns what is in effect on a root that is made of layer a and came up with a generation.
func running(t *testing.T, s *state.State, g state.Generation) *Effect {
	t.Helper()
	folder, err := state.Open(t.TempDir())
	if err == nil {
		s.Tracking = spec.Following
		err = folder.Save(s)
	}
	dir, store := t.TempDir(), t.TempDir()
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, paths.Run), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := record.New(folder, &record.Boot{Mode: "netboot", Generation: g}, filepath.Join(t.TempDir(), "boot.json"))
	root := &stacked.Root{Dir: dir, ID: "r", Owner: o, Say: t.Logf, Store: func() (*layers.Store, error) { return layers.OpenStore(store) }}
	ef := &Effect{Last: func() spec.Status { return spec.Status{} }, Clock: still{true}, Within: time.Minute,
		Table: Table{Dir: dir, Owner: o, Folder: folder, Root: root, Log: still{}}}
	ef.Scopes.Root, ef.Scopes.Kernel = "r", "k"
	return ef
}

// A change on trial is taken back to what proved itself, or was put in effect before it, where this
// root can have that.
func TestWayBack(t *testing.T) {
	here, old, elsewhere, tried := gen(2, "a"), gen(1, "a"), gen(2, "b"), gen(3, "a")
	for _, c := range []struct {
		name          string
		best, applied *state.Generation
		want          *state.Generation
	}{
		{"proved", &here, &old, &here}, {"proved elsewhere", &elsewhere, &old, &old}, {"nothing", nil, nil, nil},
		{"only what is tried", &elsewhere, &tried, nil},
	} {
		ef := running(t, &state.State{Current: c.best, Trial: &state.Trial{Generation: tried, Boot: "k"}}, tried)
		now, err := ef.Owner.Read()
		if err == nil {
			err = ef.Owner.Note(func(l *record.Live) { l.Applied = c.applied })
		}
		if err != nil {
			t.Fatal(err)
		}
		if got := ef.WayBack(now.State); (got == nil) != (c.want == nil) || got != nil && !got.Same(*c.want) {
			t.Errorf("%s: %+v", c.name, got)
		}
	}
}

// What this root runs is written down once, and what was judged is not in effect any more.
func TestGoTo(t *testing.T) {
	cameWith, next := gen(1, "a"), gen(2, "a")
	ef := running(t, &state.State{}, cameWith)
	for i, c := range []struct {
		to      state.Generation
		applied *state.Generation
		judged  bool // it goes on
	}{{cameWith, nil, true}, {next, &next, false}, {next, &next, true}, {cameWith, nil, false}} {
		if err := os.WriteFile(ef.Path(paths.RunGates), nil, 0o644); err != nil {
			t.Fatal(err)
		}
		if err := ef.GoTo(c.to); err != nil {
			t.Fatal(err)
		}
		_, err := os.Stat(ef.Path(paths.RunGates))
		if l := ef.Owner.Boot().Live; (err == nil) != c.judged || (l.Applied == nil) != (c.applied == nil) ||
			l.Applied != nil && !l.Applied.Same(*c.applied) {
			t.Errorf("%d: %v, %+v", i, err, l.Applied)
		}
	}
}

// A trial is written down before anything is made, with who ends it.
func TestBeginTrial(t *testing.T) {
	for act, want := range map[decide.Act]state.Confirm{decide.TryForReach: state.ByReach, decide.TryForOperator: state.ByOperator,
		decide.MakeWithoutTrial: ""} {
		ef := running(t, &state.State{}, gen(1, "a"))
		next := &track.Found{Generation: gen(2, "a")}
		next.Overlay.Confirm = &spec.Confirm{Within: 300}
		kept := spec.Items{Sysctl: []spec.Sysctl{{Key: "net/a", Value: "1"}}}
		got, err := ef.BeginTrial(next, kept, decide.Step{Act: act})
		s, readErr := ef.Owner.State()
		if err := errors.Join(err, readErr); err != nil || (got == nil) != (want == "") || (s.Trial == nil) != (want == "") {
			t.Fatalf("%s: %+v, %v", act, got, err)
		}
		if got != nil && (s.Trial.Confirm != want || s.Trial.Boot != "k" || len(s.Trial.Kept.Sysctl) != 1 ||
			s.Trial.Within != map[state.Confirm]int64{state.ByReach: 60, state.ByOperator: 300}[want]) {
			t.Errorf("%+v", s.Trial)
		}
	}
}

// A root that has just come up is brought to its overlay, whatever pauses it; the newest overlay
// that was accepted pauses a node, and an operator before it.
func TestPause(t *testing.T) {
	found := &track.Found{Generation: gen(1, "a")}
	found.Overlay.Pause = &spec.Pause{Reason: "a freeze"}
	ef := running(t, &state.State{}, gen(1, "a"))
	if why, err := ef.PausedBy(found); why != "" || err != nil {
		t.Errorf("it comes up: %q, %v", why, err)
	}
	ef.Last = func() spec.Status { return spec.Status{RootID: "r"} }
	if p, err := ef.Pause(found); err != nil || p == nil || p.Author != fleet || p.Reason != "a freeze" {
		t.Errorf("%+v, %v", p, err)
	}
	if err := ef.Owner.Commit(record.Change{State: func(s *state.State) {
		s.Paused = &spec.Hold{Kind: spec.HoldPause, Author: "ann"}
	}}); err != nil {
		t.Fatal(err)
	}
	if p, err := ef.Pause(found); err != nil || p == nil || p.Author != "ann" {
		t.Errorf("%+v, %v", p, err)
	}
	if why, err := ef.PausedBy(found); why == "" || err != nil {
		t.Errorf("%q, %v", why, err)
	}
}

// What has a window is set in it, and not by a clock that nobody has set.
func TestLate(t *testing.T) {
	ef := running(t, &state.State{}, gen(1, "a"))
	found := new(track.Found)
	found.Overlay.Maintenance = &spec.Maintenance{Windows: map[string]spec.Window{}}
	r := &spec.Realtime{Windows: []string{"night"}}
	if why := ef.Late(found, new(spec.Realtime)); why != "" {
		t.Error(why)
	}
	in := ef.Late(found, r)
	ef.Clock = still{}
	if out := ef.Late(found, r); in == "" || out == "" || in == out {
		t.Errorf("%q, %q", in, out)
	}
}

// Without anybody who is trusted nothing is in effect.
func TestUnbound(t *testing.T) {
	ef := running(t, &state.State{}, gen(1, "a"))
	ef.Unbound = errors.New("nobody is trusted")
	if _, err := ef.Running(); !errors.Is(err, ef.Unbound) {
		t.Error(err)
	}
}

// A change that met a full disk is tried again by itself: with room again it is well.
func TestWhatPassesIsNotHeldAgainstAChange(t *testing.T) {
	for err, want := range map[error]bool{unix.EBUSY: true, unix.ENOSPC: true, unix.EROFS: true, unix.EIO: true, unix.EINVAL: false, unix.EPERM: false} {
		if got := Passes(fmt.Errorf("write journal: %w", &fs.PathError{Op: "write", Path: "journal", Err: err})); got != want {
			t.Errorf("%v: %v", err, got)
		}
	}
}

// What scripts take does not count, up to their timeouts; what they could have taken does not
// either.
func TestScriptsAreNotCounted(t *testing.T) {
	for _, c := range []struct {
		name  string
		took  []time.Duration // by scripts that may take 30 minutes each, one after another
		after time.Duration   // when it happens
	}{
		{"none", nil, 5 * time.Minute},
		{"one that is over at once", []time.Duration{0}, 5 * time.Minute},
		{"one that has ended", []time.Duration{10 * time.Minute}, 15 * time.Minute},
		{"two that have ended", []time.Duration{10 * time.Minute, 3 * time.Minute}, 18 * time.Minute},
		{"one that hangs", []time.Duration{10 * time.Hour}, 35 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w stopwatch
				began, rang := time.Now(), time.Duration(0)
				stop := w.after(5*time.Minute, func() { rang = time.Since(began) })
				for _, took := range c.took {
					ended := w.script(30 * time.Minute)
					time.Sleep(took)
					ended()
				}
				time.Sleep(24 * time.Hour)
				if rang != c.after || stop() {
					t.Errorf("it happened after %s, want %s", rang, c.after)
				}
			})
		})
	}
}

// What was stopped does not happen when a script ends.
func TestWhatWasStoppedStaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w stopwatch
		stop := w.after(time.Minute, func() { t.Error("it happened") })
		ended := w.script(time.Hour)
		if !stop() {
			t.Error("it had happened")
		}
		ended()
		time.Sleep(24 * time.Hour)
	})
}
