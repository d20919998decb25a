// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/traces"
)

// traced has a node's decisions gathered where somebody asks for traces. Each of them is made on
// what is written down: an agent that is killed then, and the next one, decide alike.
func traced(o session.Options) session.Options {
	gather := traces.Into()
	o.Decided = func(f *decide.Facts, s decide.Step) {
		if err := written(o.Root, f); err != nil && f.Event != decide.Swap { // which is decided on what waits alone
			panic(fmt.Sprintf("%s: %v", s.Name, err)) // of a test
		}
		if gather != nil {
			gather(f, s)
		}
	}
	return o
}

// written compares the facts of a decision with what a node finds that is opened now.
func written(root string, f *decide.Facts) error {
	boot, err := record.Load(root)
	if errors.Is(err, fs.ErrNotExist) { // of a host that is attached
		boot, err = &record.Boot{Generation: f.Root, Live: record.Live{Without: f.Without}}, nil
	}
	if err != nil {
		return err
	}
	folder := state.View(root + paths.State)
	folder.Beside(root + paths.RunState)
	now, err := record.New(folder, boot, root+paths.RunBoot).Read()
	if err != nil {
		return err
	}
	s := now.State
	for name, pair := range map[string][2]any{
		"best": {s.Best(), f.Best}, "current": {s.Current, f.Current}, "staged": {s.Staged, f.Staged}, "ahead": {s.Ahead, f.Ahead},
		"root": {now.Boot.Generation, f.Root}, "without": {now.Boot.Live.Without, f.Without},
	} {
		if !reflect.DeepEqual(pair[0], pair[1]) {
			err = errors.Join(err, fmt.Errorf("%s: %+v is written down, and known is %+v", name, pair[0], pair[1]))
		}
	}
	return err
}

// The trace has the loader's steps, those of the first run, and those of the last.
func TestTrace(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	b, err := record.LoadBoot(m.root + paths.RunBoot)
	if err != nil {
		t.Fatal(err)
	}
	b.Trace = []spec.Step{{Name: "network", Start: 1, Took: 2, Result: "no answer"}}
	if err := record.SaveBoot(m.root+paths.RunBoot, b); err != nil {
		t.Fatal(err)
	}
	trace := func() *spec.Trace {
		t.Helper()
		n := m.open()
		defer n.Close() // the test is over
		tr, err := n.Trace()
		if err != nil {
			t.Fatal(err)
		}
		return tr
	}
	names := func(steps []spec.Step) (list []string) {
		for _, s := range steps {
			list = append(list, s.Name)
			if s.Result != spec.StepOK || s.Start <= 0 || s.Took < 0 {
				t.Errorf("%+v", s)
			}
		}
		return list
	}
	m.apply()
	tr := trace()
	if tr.Node != "superhost" || tr.BootID == "" || !tr.Started.Before(time.Now()) || len(tr.Boot) != 1 || tr.Boot[0].Result != "no answer" {
		t.Errorf("%+v", tr)
	}
	if got := names(tr.First); !slices.Contains(got, "check sysctl") || !slices.Contains(got, "apply sysctl") || slices.Contains(got, "restore sysctl") || tr.Last != nil {
		t.Errorf("first %q, last %v", got, tr.Last)
	}
	m.apply()
	if tr = trace(); !slices.Contains(names(tr.First), "apply sysctl") || slices.Contains(names(tr.Last), "apply sysctl") || !slices.Contains(names(tr.Last), "check sysctl") {
		t.Errorf("%+v", tr)
	}
	m.publishItems(2, layerNamed("a"), spec.Items{})
	m.sync()
	if tr = trace(); !slices.Contains(names(tr.Last), "restore sysctl") || !slices.Contains(names(tr.First), "apply sysctl") {
		t.Errorf("%+v", tr)
	}
}
