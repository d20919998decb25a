// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"context"
	"errors"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/node/hold"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// ReturnTo changes the node to the generation that choose returns. The decision is saved
// first: cut in between, the next look goes on with it. A change that fails is taken back,
// and the decision with it.
func (c *Cycle) ReturnTo(ctx context.Context, h spec.Hold, choose hold.Choice) (*spec.Status, error) {
	if c.Tracker == nil {
		return nil, c.Unbound
	}
	before, err := c.Effect.Running()
	if err != nil {
		return nil, err
	}
	s, err := c.Owner.State()
	if err != nil {
		return nil, err
	}
	to := choose(s.Kept(), before.Generation)
	if to == nil {
		return nil, hold.NotKept(s.Kept())
	}
	next, err := c.Tracker.Return(to)
	if err != nil {
		return nil, err
	}
	if s.Trial.Pending() {
		s.Undo("somebody went back to generation " + fmt.Sprint(to.Generation))
	}
	was := s.Clone()
	s.Return(*to, c.Root.LayersHere(s)...)
	s.Keep(h)
	live, why := c.Boot.Mode == spec.ModeAttached, ""
	if !live {
		live, why = c.Destination.Extent(before, next)
	}
	save := record.Change{State: func(to *state.State) { *to = *s }, Urgent: record.Verdict}
	if !live { // a boot would forget what is in memory only
		save.Urgent = record.Word
	}
	if err := c.Owner.Commit(save); err != nil {
		return nil, err
	}
	c.Holds.RecordHold(h.Kind, h, to.Generation)
	if !live {
		if err := c.Look.Wait(next, "a reboot: "+why); err != nil {
			return nil, err
		}
		return c.Look.Status(ctx)
	}
	result, err := c.Effect.Change(ctx, before, next, func(s *state.State, _ string) { *s = *was })
	switch {
	case err != nil:
		return nil, err
	case result.Err != nil:
		st, err := c.cycle(ctx, made{try: try{before: before, next: next}, result: result, returns: true})
		return st, errors.Join(err, c.Owner.Commit(record.Change{State: func(s *state.State) { *s = *was }, Urgent: record.Verdict}))
	}
	c.RecordChanges(result, to.Generation, h.Kind)
	noted := c.Owner.Note(func(l *state.Live) { l.TakenBack, l.Without = nil, nil })
	if err := errors.Join(noted, c.SetSync(spec.SyncBehind, state.SayHold(&h)), c.Root.Arrive(next.Generation)); err != nil {
		return nil, err
	}
	return c.Look.Report(next, result)
}
