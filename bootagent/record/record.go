// SPDX-License-Identifier: Apache-2.0

// Package record owns what an open node has written down of itself: its state, which outlives
// the boot, and the record of this boot. A part reads a [Snapshot] and hands over a [Change]; what
// is written down is saved here and nowhere else, in one order.
package record

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// Snapshot holds the record as read at one time. It is never changed.
type Snapshot struct {
	State *state.State
	Boot  *Boot
}

// Change holds the parts of the record to write. A part of it that is nil changes nothing.
type Change struct {
	State  func(*state.State)
	Boot   func(*Boot)
	Urgent Urgency // of State
}

// Urgency says what is done for a state to be saved where the disk is full or takes no writes.
type Urgency int

// Urgencies.
const (
	Plain   Urgency = iota // it is not saved
	Word                   // what an operator says: the room that is kept on the disk is used
	Verdict                // what must hold before something is taken back: it is kept in memory, too
)

// Owner owns the record of an open node.
type Owner struct {
	folder *state.Folder
	boot   *Boot
	file   string // of boot
}

// New returns the owner of a state and of the record of a boot, which is kept in a file.
func New(folder *state.Folder, boot *Boot, file string) *Owner {
	return &Owner{folder, boot, file}
}

// State returns the state.
func (o *Owner) State() (*state.State, error) { return o.folder.Load() }

// Read returns what is written down.
func (o *Owner) Read() (Snapshot, error) {
	s, err := o.folder.Load()
	return Snapshot{s, o.Boot()}, err
}

// Boot returns the record of this boot.
func (o *Owner) Boot() *Boot {
	b := *o.boot
	l := &b.Live
	l.Refused, l.Corrupt, l.Sound = slices.Clone(l.Refused), slices.Clone(l.Corrupt), slices.Clone(l.Sound)
	for _, m := range []*map[string]uint64{&l.Counts.Drift, &l.Counts.Corrections, &l.Counts.Fetches, &l.Counts.Transitions} {
		*m = maps.Clone(*m)
	}
	l.Counts.Artifacts = maps.Clone(l.Counts.Artifacts)
	return &b
}

// Commit writes a change down, the state before the record of the boot, which ends with it.
func (o *Owner) Commit(c Change) error {
	if c.State != nil {
		s, err := o.folder.Load()
		if err != nil {
			return err
		}
		c.State(s)
		if err := o.save(s, c.Urgent); err != nil {
			return err
		}
	}
	if c.Boot == nil {
		return nil
	}
	c.Boot(o.boot)
	return SaveBoot(o.file, o.boot)
}

// Note writes down what the running node notes of this boot.
func (o *Owner) Note(change func(*Live)) error {
	return o.Commit(Change{Boot: func(b *Boot) { change(&b.Live) }})
}

// Remember changes what is noted of this boot. The next Commit writes it down.
func (o *Owner) Remember(change func(*Live)) { change(&o.boot.Live) }

func (o *Owner) save(s *state.State, u Urgency) error {
	if u == Verdict {
		return o.folder.SaveVerdict(s)
	}
	if u == Word {
		room := o.folder.MakeRoom()
		if err := o.folder.Save(s); err != nil { // there may be room all the same
			return errors.Join(err, room)
		}
		return nil
	}
	return o.folder.Save(s)
}

// SetSync sets the sync axis and notes since when it is so.
func (o *Owner) SetSync(sync spec.Sync, detail string) error {
	return o.Commit(Change{Boot: func(b *Boot) {
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

// Postpone notes that a generation failed for a reason that may go away; see [state.State.Postpone].
func (o *Owner) Postpone(g state.Generation, why string) error {
	return o.Commit(Change{State: func(s *state.State) { s.Postpone(g, why, time.Now()) }, Urgent: Verdict})
}

// EndTrial forgets the trial of a change that was taken back for another reason.
func (o *Owner) EndTrial() error {
	s, err := o.State()
	if err != nil || s.Trial == nil {
		return err
	}
	return o.Commit(Change{State: func(s *state.State) { s.Trial = nil }, Urgent: Verdict})
}
