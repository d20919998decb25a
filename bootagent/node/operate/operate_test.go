// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// told collects the written fields.
type told []events.Field

func (l *told) Record(_ string, fields ...events.Field)  { *l = append(*l, fields...) }
func (*told) RecordChanges(items.Result, uint64, string) {}
func (*told) Note(state.Generation, error, spec.Event)   {}
func (*told) Say(string, ...any)                         {}

// operating returns the operations of a host that caisson did not boot.
func operating(t *testing.T, last spec.Status) (*Operations, *told) {
	t.Helper()
	folder, err := state.Open(t.TempDir())
	dir, log := t.TempDir(), new(told)
	if err == nil {
		err = os.MkdirAll(filepath.Join(dir, paths.Run), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := record.New(folder, &record.Boot{Mode: spec.ModeAttached}, filepath.Join(t.TempDir(), "boot.json"))
	ef := &effect.Effect{Last: func() spec.Status { return last }, Table: effect.Table{Dir: dir, Owner: o, Folder: folder, Log: log}}
	ef.Scopes.Root = "r"
	up := func() time.Duration { return time.Minute }
	return &Operations{Base: operation.Engine{Dir: t.TempDir(), Root: dir, Boot: "k", Clock: operation.Clock{Up: up}}, Root: "r", Kernel: "k", Owner: o, Effect: ef,
		Destination: &destination.Destination{Owner: o}, Soak: &soak.Soak{Dir: dir, Root: "r", Kernel: "k", Owner: o,
			Up: up}, Post: new(post.Post)}, log
}

// An engine is of what runs: the next one, of another overlay, has nothing of it.
func TestEngine(t *testing.T) {
	op, log := operating(t, spec.Status{})
	first, next := new(track.Found), new(track.Found)
	first.Overlay.Node, next.Overlay.Node = "a", "b"
	first.Overlay.Network.NTP = []string{"ntp.example"}
	first.Overlay.Gates = &spec.Gates{Checks: []spec.HealthCheck{{Name: "c"}}}
	a, b := op.Engine(first), op.Engine(next)
	if a.Node != "a" || a.Gates == nil || len(a.Servers) != 1 || b.Node != "b" || b.Gates != nil || len(b.Servers) != 0 || b.Swap != nil ||
		op.Base.Node != "" {
		t.Errorf("%+v, %+v", a, b)
	}
	a.Record("began", spec.Operation{Name: "o", ID: "i"}, "why it did")
	b.Record("began", spec.Operation{Name: "o", ID: "i"}, "")
	if n := len(*log); n != 7 || !slices.Contains(*log, events.With("why", "why it did")) {
		t.Errorf("%+v", *log)
	}
}

// What a node is at is read of what is written down: its checks, and whether its root came up.
func TestPhase(t *testing.T) {
	g := state.Generation{Generation: 1, Overlay: "o", Layer: "l"}
	op, _ := operating(t, spec.Status{RootID: "r"})
	now := record.Snapshot{State: &state.State{Current: &g}, Boot: op.Owner.Boot()}
	for _, c := range []struct {
		judged string // the root of the checks
		runs   *state.Generation
		want   decide.Phase
	}{{"", nil, decide.Nothing}, {"another", &g, decide.Idle}, {"r", &g, decide.Soaking}} {
		r := gate.Record{Root: c.judged, Overlay: "o"}
		if err := r.Save(filepath.Join(op.Base.Root, paths.RunGates)); err != nil {
			t.Fatal(err)
		}
		if is, err := op.Phase(now, c.runs); err != nil || is.Phase != c.want {
			t.Errorf("%q: %s, want %s, %v", c.judged, is.Phase, c.want, err)
		}
	}
	op, _ = operating(t, spec.Status{})
	now = record.Snapshot{State: &state.State{Staged: &g}, Boot: &record.Boot{Mode: "netboot", Generation: g}}
	if is, err := op.Phase(now, &g); err != nil || is.Phase != decide.Entering {
		t.Errorf("%s, %v", is.Phase, err)
	}
}

// A machine that remembers nothing may go back to the root that it came up with, and to none that
// the registry had then and that did not come up.
func TestForgotten(t *testing.T) {
	for _, c := range []struct {
		name string
		live record.Live
		want bool
	}{
		{"nothing is known", record.Live{}, true},
		{"another one was there", record.Live{Had: "b"}, false},
		{"it was there, and did not come up", record.Live{Had: "a", Began: "b"}, true},
		{"it was there, and what came up is not known", record.Live{Had: "a"}, true},
		{"it came up, and was left since", record.Live{Had: "a", Began: "a"}, false},
	} {
		if got := forgotten(&c.live, "a"); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
