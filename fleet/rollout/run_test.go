// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"slices"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// What a halt takes back follows the rule, and the layers that came with it are on the
// reject list where no wave keeps them.
func TestWhatAHaltTakesBack(t *testing.T) {
	f := newFleet(t, layout(t), 3, "{waves: [{count: 1}]}")
	fleet, err := f.p.Read(t.Context(), f.policy())
	must(t, err)
	rows, err := fleet.Nodes(t.Context())
	must(t, err)
	has := rows["n00000"].Overlay
	d := f.driver()
	d.Publisher.Now = f.now
	for undo, want := range map[string]struct{ back, reject []string }{
		spec.UndoNone: {nil, nil}, spec.UndoWave: {[]string{"2"}, nil}, spec.UndoAll: {[]string{"1", "2"}, []string{"layer"}},
	} {
		plan := &spec.RolloutPlan{Layers: []string{"layer"}, Rule: spec.RolloutRule{Undo: undo},
			Before: fleet.Floor(), Waves: []spec.Wave{{Name: "1", Nodes: map[string]string{"n00000": has}}, {Name: "2", Nodes: map[string]string{"n00001": "y"}}}}
		row := spec.Rollout{Phase: spec.RolloutRunning, Waves: []spec.RolloutWave{{Begun: 1, Done: 2}, {Begun: 3}}}
		s, err := d.step(t.Context(), fleet, plan, row, Decision{Act: Halt, Wave: 1, Back: []int{1}, Of: []Verdict{{}, {Failed: map[string]string{"n00001": "sick"}}}, Reason: "why"})
		must(t, err)
		var got []string
		for i, w := range s.Row.Waves {
			if w.Back != 0 {
				got = append(got, plan.Waves[i].Name)
			}
		}
		if !slices.Equal(got, want.back) || !slices.Equal(s.Reject, want.reject) || s.Row.Phase != spec.RolloutHalted || s.Row.Waves[1].Failed["n00001"] != "sick" {
			t.Errorf("undo %s: %v go back, %v is rejected, %+v", undo, got, s.Reject, s.Row)
		}
		if row.Waves[1].Back != 0 {
			t.Errorf("undo %s changed the row that it was given", undo)
		}
	}
}
