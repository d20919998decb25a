// SPDX-License-Identifier: Apache-2.0

package effect

import (
	"github.com/caisson-os/caisson/bootagent/state"
)

// WayBack returns what this root can go back to from the change on trial: what proved
// itself, or else what it was at before; nil where there is neither.
func (ef *Effect) WayBack(s *state.State) *state.Generation {
	if best := s.Best(); best != nil && ef.root.RunsHere(best.Layer) {
		return best
	}
	if a := ef.Boot.Live.Applied; a != nil && !s.Trial.Of(*a) && ef.root.RunsHere(a.Layer) {
		return a
	}
	return nil
}
