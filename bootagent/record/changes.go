// SPDX-License-Identifier: Apache-2.0

package record

import (
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// SetSync sets the sync axis and notes since when it is so.
func (o *Owner) SetSync(sync spec.Sync, detail string) error {
	return o.Commit(Change{Boot: func(b *state.Boot) {
		if b.Sync != sync || b.Live.SyncSince == 0 {
			b.Live.SyncSince = time.Now().Unix()
		}
		b.Sync, b.SyncDetail = sync, detail
	}})
}

// TryAgain forgets why a generation failed, before it is made once more: what passes now is
// not to be left for that.
func (o *Owner) TryAgain(g state.Generation) error {
	s, err := o.State()
	if err != nil || s.Staged == nil || !s.Staged.Same(g) || s.Staged.Again == 0 {
		return err
	}
	return o.Commit(Change{State: func(s *state.State) { s.TryAgain(g) }})
}

// EndTrial forgets the trial of a change that was taken back for another reason.
func (o *Owner) EndTrial() error {
	s, err := o.State()
	if err != nil || s.Trial == nil {
		return err
	}
	return o.Commit(Change{State: func(s *state.State) { s.Trial = nil }, Urgent: Verdict})
}
