// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// told collects the written events.
type told []string

func (l *told) Record(event string, fields ...events.Field) {
	for _, f := range fields {
		event += fmt.Sprintf(" %s=%v", f.Name, f.Value)
	}
	*l = append(*l, event)
}
func (l *told) Note(_ state.Generation, _ error, e spec.Event) {
	*l = append(*l, fmt.Sprintf("%s by %s: %s", e.Event, e.Transition, e.Did))
}
func (*told) Say(string, ...any) {}

// soaking returns what a node judges that runs a generation, and what it wrote down.
func soaking(t *testing.T, s *state.State, b *record.Boot, runs state.Generation, checks ...spec.HealthCheck) (*Soak, *told) {
	t.Helper()
	folder, err := state.Open(t.TempDir())
	if err == nil {
		s.Tracking = spec.Following
		err = folder.Save(s)
	}
	dir, log := t.TempDir(), new(told)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, paths.Run), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	found := &track.Found{Generation: runs}
	found.Overlay.Gates = &spec.Gates{Checks: checks}
	return &Soak{Dir: dir, Root: "r", Kernel: "k", Owner: record.New(folder, b, filepath.Join(t.TempDir(), "boot.json")),
		Tracker: new(track.Tracker),
		Running: func() (*track.Found, error) { return found, nil }, Up: func() time.Duration { return 90 * time.Second }, Log: log}, log
}

func gen(n uint64) state.Generation {
	return state.Generation{Generation: n, Epoch: 1, Overlay: fmt.Sprint(n), Layer: "l"}
}

// A verdict is known to the next look, until it is forgotten.
func TestWhatIsJudged(t *testing.T) {
	g := gen(2)
	trial := &state.Trial{Generation: g, Boot: "k"}
	so, log := soaking(t, &state.State{Trial: trial, Staged: &g}, &record.Boot{Mode: "netboot"}, g,
		spec.HealthCheck{Name: "c", Timeout: 5, Interval: 5, Soak: 30})
	if j, err := so.Judging(); err != nil || j != nil {
		t.Fatalf("%+v, %v", j, err)
	}
	if err := so.BeginGates(t.Context(), decide.Step{Name: "soak"}, g, true); err != nil {
		t.Fatal(err)
	}
	now, err := so.Owner.Read()
	if err != nil || now.State.Trial != nil || now.Boot.Live.Applied == nil || !now.Boot.Live.Applied.Same(g) {
		t.Errorf("%+v, %v", now, err)
	}
	j, err := so.Judging()
	if err != nil || j == nil || j.Record.Began != 90 || len(j.Checks()) != 2 || j.Checks()[0].Name != gate.Reach.Name {
		t.Fatalf("%+v, %v", j, err)
	}
	if v := so.Verdict(now.State, j); v.State != gate.Waiting || so.NextLook(j) != time.Second {
		t.Errorf("%+v, again in %s", v, so.NextLook(j))
	}
	failed := gen(2)
	failed.Failed = "it was"
	if v := so.Verdict(&state.State{Staged: &failed}, j); v.State != gate.Failed || v.Why != "it was" {
		t.Errorf("%+v", v)
	}
	if len(*log) != 1 || (*log)[0] != "judged generation=2 epoch=1 overlay=2 transition=soak" {
		t.Errorf("%q", *log)
	}
	if err := so.EndGates(); err != nil || so.Owner.Boot().Live.Applied != nil {
		t.Error(err)
	}
	if j, err := so.Judging(); err != nil || j != nil {
		t.Errorf("%+v, %v", j, err)
	}
}

// What is doubted is held against a generation, or taken again when the registry answers.
func TestCompared(t *testing.T) {
	for act, want := range map[decide.Act]string{decide.Convict: "keeps it rejected",
		decide.Absolve: "does not hold it against the generation, and takes it again when the registry answers"} {
		was, rejected := gen(2), gen(2)
		rejected.Failed = "not reached"
		so, log := soaking(t, &state.State{Doubted: &was, Staged: &rejected}, &record.Boot{Sync: spec.SyncCurrent}, gen(1))
		if err := so.Compared(decide.Step{Act: act, Name: "n", Why: "w"}); err != nil {
			t.Fatal(err)
		}
		now, err := so.Owner.Read()
		if err != nil || now.State.Doubted != nil || (now.State.Staged.Failed == "") != (act == decide.Absolve) ||
			(now.Boot.Sync == spec.SyncUnreachable) != (act == decide.Absolve) {
			t.Errorf("%s: %+v, %s, %v", act, now.State.Staged, now.Boot.Sync, err)
		}
		if len(*log) != 2 || (*log)[0] != "compared generation=2 overlay=2 why=w transition=n" || (*log)[1] != "compared by n: "+want {
			t.Errorf("%q", *log)
		}
	}
}

// Checks that go on being looked at degrade what runs by what they found last on this root.
func TestUnwell(t *testing.T) {
	g := gen(1)
	so, _ := soaking(t, &state.State{}, &record.Boot{}, g, spec.HealthCheck{Name: "a", Watch: true},
		spec.HealthCheck{Name: "b", Watch: true}, spec.HealthCheck{Name: "c"})
	found, err := so.Running()
	if err != nil {
		t.Fatal(err)
	}
	for root, want := range map[string]int{"r": 1, "another": 0} {
		r := gate.Record{Root: root, Overlay: g.Overlay, Checks: map[string]gate.Progress{"a": {Looked: 8, Since: 3},
			"b": {Looked: 8, Why: "it hangs"}, "c": {Looked: 8, Why: "once"}}}
		if err := r.Save(filepath.Join(so.Dir, paths.RunWatched)); err != nil {
			t.Fatal(err)
		}
		if why, err := so.Unwell(found); err != nil || len(why) != want || want > 0 && why["b"] != "it hangs" {
			t.Errorf("%s: %q, %v", root, why, err)
		}
	}
}

// A boot has to show that the registry is reached where it was reached before and there is a way
// back; where nobody answered before it, all that it brought is unread.
func TestWhatABootHasToShow(t *testing.T) {
	g, before := gen(2), gen(1)
	for _, c := range []struct {
		name string
		boot record.Boot
		want string
	}{
		{"reached", record.Boot{Mode: "netboot", Source: spec.SourceFetched, Generation: g, Live: record.Live{Began: "r"}}, ""},
		{"by a soft-reboot", record.Boot{Mode: "netboot", Source: spec.SourceFetched, Generation: g, Upper: paths.RootUpper}, ""},
		{"nobody answered", record.Boot{Mode: "netboot", Source: "kept", Generation: g}, "all of it"},
		{"attached", record.Boot{Mode: spec.ModeAttached, Generation: g}, ""},
	} {
		s := &state.State{Current: &before, Staged: &g}
		so, _ := soaking(t, s, &c.boot, g)
		if got := so.Unread(s, g); got != c.want {
			t.Errorf("%s: %q", c.name, got)
		}
	}
}
