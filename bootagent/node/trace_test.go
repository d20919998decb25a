// SPDX-License-Identifier: Apache-2.0

package node

import (
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// The trace has the loader's steps, those of the first run, and those of the last.
func TestTrace(t *testing.T) {
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	b, err := state.LoadBoot(m.root + paths.RunBoot)
	if err != nil {
		t.Fatal(err)
	}
	b.Trace = []spec.Step{{Name: "network", Start: 1, Took: 2, Result: "no answer"}}
	if err := state.SaveBoot(m.root+paths.RunBoot, b); err != nil {
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
