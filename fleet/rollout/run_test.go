// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/spec"
)

// What a halt takes back follows the rule, and the layers that came with it are on the
// reject list where no wave keeps them.
func TestWhatAHaltTakesBack(t *testing.T) {
	d := &Driver{Publisher: publish.Publisher{Now: time.Unix(100, 0)}}
	for undo, want := range map[string]struct{ back, reject []string }{
		spec.UndoNone: {nil, nil}, spec.UndoWave: {[]string{"b"}, nil}, spec.UndoAll: {[]string{"a", "b"}, []string{"layer"}},
	} {
		plan := &spec.RolloutPlan{Layers: []string{"layer"}, Rule: spec.RolloutRule{Undo: undo},
			Waves: []spec.Wave{{Nodes: map[string]string{"a": "x"}}, {Nodes: map[string]string{"b": "y", "c": "y"}}}}
		row := spec.Rollout{Phase: spec.RolloutRunning, Waves: []spec.RolloutWave{{Begun: 1, Done: 2}, {Begun: 3, LeftOut: map[string]string{"c": "held"}}}}
		s, err := d.step(t.Context(), plan, row, Decision{Act: Halt, Wave: 1, LeftOut: row.Waves[1].LeftOut, Failed: map[string]string{"b": "sick"}, Reason: "why"})
		must(t, err)
		if got := slices.Sorted(maps.Keys(s.Back)); !slices.Equal(got, want.back) || !slices.Equal(s.Reject, want.reject) || s.Row.Phase != spec.RolloutHalted || s.Row.Waves[1].Failed["b"] != "sick" {
			t.Errorf("undo %s: %v go back, %v is rejected, %+v", undo, got, s.Reject, s.Row)
		}
		if row.Waves[1].Back != 0 {
			t.Errorf("undo %s changed the row that it was given", undo)
		}
	}
}
