// SPDX-License-Identifier: Apache-2.0

package session

import (
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/deadline"
	"github.com/caisson-os/caisson/internal/paths"
)

// TryAgain forgets why a generation failed, before it is made once more: what passes now is
// not to be left for that.
func (n *Session) TryAgain(g state.Generation) error {
	now, err := n.Owner.Read()
	if is := now.State; err != nil || is.Staged == nil || !is.Staged.Same(g) || is.Staged.Again == 0 {
		return err
	}
	return n.Owner.Commit(record.Change{State: func(s *state.State) { s.TryAgain(g) }})
}

// EndTrial forgets the trial of a change that was taken back for another reason.
func (n *Session) EndTrial() error {
	now, err := n.Owner.Read()
	if err != nil || now.State.Trial == nil {
		return err
	}
	return n.Owner.Commit(record.Change{State: func(s *state.State) { s.Trial = nil }, Urgent: record.Verdict})
}

// EndDeadline ends the deadline of this boot: it came up.
func (n *Session) EndDeadline() error { return deadline.End(n.Path(paths.RunDeadline)) }
