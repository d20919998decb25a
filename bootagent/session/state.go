// SPDX-License-Identifier: Apache-2.0

package session

import (
	"github.com/caisson-os/caisson/bootagent/deadline"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/internal/paths"
)

// TryAgain forgets why a generation failed, before it is made once more: what passes now is
// not to be left for that.
func (n *Session) TryAgain(g state.Generation) error {
	s, err := n.Folder.Load()
	if err != nil {
		return err
	}
	if s.Staged == nil || !s.Staged.Same(g) || s.Staged.Again == 0 {
		return nil
	}
	s.TryAgain(g)
	return n.Folder.Save(s)
}

// SaveWord saves what an operator says, or is asked, on a full disk by the room that is kept there.
func (n *Session) SaveWord(s *state.State) error {
	if err := n.Folder.MakeRoom(); err != nil {
		n.Say("%v", err) // there may be room all the same
	}
	return n.Folder.Save(s)
}

// EndTrial forgets the trial of a change that was taken back for another reason.
func (n *Session) EndTrial() error {
	s, err := n.Folder.Load()
	if err != nil || s.Trial == nil {
		return err
	}
	s.Trial = nil
	return n.Folder.SaveVerdict(s)
}

// EndDeadline ends the deadline of this boot: it came up.
func (n *Session) EndDeadline() error { return deadline.End(n.Path(paths.RunDeadline)) }
