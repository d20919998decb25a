// SPDX-License-Identifier: Apache-2.0

package track

import (
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/spec"
)

// held says why a node does not take a generation that it may, "" where it does. One
// that has nothing else takes what there is.
func held(s *state.State, g state.Generation) string {
	switch {
	case s.Current == nil:
		return ""
	case s.Trial.Of(g) && s.Trial.Pending():
		return "it is not confirmed yet"
	case s.Trial.Of(g):
		return "it was undone: " + s.Trial.Reason + "; 'caisson-agent sync --retry' tries it again"
	case s.Tracking != spec.Following:
		return "this node is frozen"
	}
	return ""
}
