// SPDX-License-Identifier: Apache-2.0

package state

// Accept notes that g was accepted and raises the floor to it. The caller saves
// before it acts on g: the floor must be on disk first.
//
// A raised epoch, which needs the epoch key, is the way out of every number that
// was signed by mistake or by a thief: the generations and dates of the epoch
// before do not count any more. What was rejected stays rejected.
func (s *State) Accept(g Generation) {
	if s.Current != nil && s.Current.Overlay == g.Overlay && s.Current.Generation == g.Generation {
		s.Staged = nil
	} else {
		if s.Staged != nil && s.Staged.Overlay == g.Overlay {
			g.Attempts = s.Staged.Attempts
		}
		s.Staged = &g
	}
	if g.Epoch > s.Floor.Epoch {
		s.Newest = 0
		if s.Fleet.Minimum.Epoch < g.Epoch {
			s.Fleet.Issued = 0
		}
	}
	if g.Epoch > s.Floor.Epoch || g.Epoch == s.Floor.Epoch && g.Generation > s.Floor.Generation {
		s.Floor.Epoch, s.Floor.Generation = g.Epoch, g.Generation
		s.AtFloor = g.Overlay
		s.Lost = nil // what came after is whole
	}
}

// Promote notes that the staged generation is good.
func (s *State) Promote() {
	if s.Staged == nil {
		return
	}
	s.Staged.Attempts = 0
	if s.Current != nil && s.Current.Layer != s.Staged.Layer {
		s.Previous = s.Current
	}
	s.Current, s.Staged, s.Trial = s.Staged, nil, nil
}
