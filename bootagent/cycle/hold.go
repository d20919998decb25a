// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/spec"
)

// Hold is what an operator says now, for a time that is without end when 0.
func (c *Cycle) Hold(kind, reason string, lasts time.Duration) spec.Hold {
	h := spec.Hold{Kind: kind, Reason: reason, Author: c.Options.By, Since: time.Now().Unix()}
	if lasts > 0 {
		h.Until = h.Since + int64(lasts/time.Second)
	}
	return h
}

// RecordHold writes down what an operator says.
func (c *Cycle) RecordHold(event string, h spec.Hold, generation uint64) {
	fields := []events.Field{events.With("generation", generation), events.With("why", h.Reason)}
	if h.Until != 0 {
		fields = append(fields, events.With("until", state.Time(h.Until).Format(time.RFC3339)))
	}
	c.Record(event, fields...)
}

// GenerationOf is the number of a generation, 0 of none.
func GenerationOf(g *state.Generation) uint64 {
	if g == nil {
		return 0
	}
	return g.Generation
}

// Forward ends what Freeze, Rollback and Pin began.
func (c *Cycle) Forward(why string) error {
	s, err := c.Folder.Load()
	if err != nil || s.Tracking == spec.Following {
		return err
	}
	s.Follow(time.Now().Unix())
	if err := c.Folder.Save(s); err != nil {
		return err
	}
	c.Record("forward", events.With("generation", GenerationOf(s.Best())), events.With("why", why))
	return nil
}

// endHold ends a hold whose time is over.
func (c *Cycle) endHold() error {
	s, err := c.Folder.Load()
	if err != nil {
		return err
	}
	return c.Forward("the time of the " + s.Hold.Kind + " is over")
}

// ReturnTo changes the node to the generation that choose returns. The decision is saved
// first: cut in between, the next look goes on with it. A change that fails is taken back,
// and the decision with it.
func (c *Cycle) ReturnTo(ctx context.Context, h spec.Hold, choose func(kept []state.Generation, now state.Generation) *state.Generation) (*spec.Status, error) {
	if c.Tracker == nil {
		return nil, c.Unbound
	}
	before, err := c.effect.Running()
	if err != nil {
		return nil, err
	}
	s, err := c.Folder.Load()
	if err != nil {
		return nil, err
	}
	to := choose(s.Kept(), before.Generation)
	if to == nil {
		return nil, c.nothingKept(s)
	}
	next, err := c.Tracker.Return(to)
	if err != nil {
		return nil, err
	}
	if s.Trial.Pending() {
		s.Undo("somebody went back to generation " + fmt.Sprint(to.Generation))
	}
	was := s.Clone()
	s.Return(*to, c.root.LayersHere(s)...)
	s.Keep(h)
	live, why := c.Boot.Mode == spec.ModeAttached, ""
	if !live {
		live, why = c.destination.Extent(before, next)
	}
	save := c.Folder.SaveVerdict
	if !live { // a boot would forget what is in memory only
		save = c.SaveWord
	}
	if err := save(s); err != nil {
		return nil, err
	}
	c.RecordHold(h.Kind, h, to.Generation)
	if !live {
		if err := c.wait(next, "a reboot: "+why); err != nil {
			return nil, err
		}
		return c.look.Status(ctx)
	}
	making, made := c.effect.InTime(ctx, before, next, func(s *state.State, _ string) { *s = *was })
	result := made(items.Transact(making, c.effect.Items(next), c.effect.Items(before), c.Journal, c.effect.Guard(next)))
	if t := (&turn{event: decide.Made, before: before, next: next, result: result, returns: true}); result.Err != nil {
		err := c.cycle(ctx, t)
		return t.status, errors.Join(err, c.Folder.SaveVerdict(was))
	}
	if err := c.effect.MoveCorrections(before, next, result); err != nil {
		return nil, err
	}
	c.RecordChanges(result, to.Generation, h.Kind)
	c.Boot.Live.TakenBack, c.Boot.Live.Without = nil, nil
	c.SetSync(spec.SyncBehind, state.SayHold(&h))
	if err := c.arrive(next.Generation); err != nil {
		return nil, err
	}
	return c.look.Report(next, result)
}

// arrive notes that this root runs a generation that is older than the one that it came
// up with.
func (c *Cycle) arrive(at state.Generation) error {
	if c.Boot.Mode != spec.ModeAttached {
		c.root.GoBy(at)
	}
	return c.Remember()
}

// NotKept is for a generation that this node does not have.
type NotKept []string

func (c *Cycle) nothingKept(s *state.State) error {
	var list NotKept
	for _, g := range s.Kept() {
		list = append(list, fmt.Sprint(g.Generation))
	}
	return list
}

func (k NotKept) Error() string { return "this node keeps no such generation" }

func (k NotKept) Hint() string {
	return "it keeps " + strings.Join(k, ", ") + "; 'caisson rollback' gives a node any other"
}
