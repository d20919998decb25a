// SPDX-License-Identifier: Apache-2.0

// [Holds] are an operator's orders to a node: that it keeps its content (freeze,
// rollback, pin), until forward, or that nothing is changed (pause), until resume. A change
// to another generation is made by package cycle.

package operate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Holds are those of an open node.
type Holds struct {
	Owner *record.Owner
	By    string                                     // who says it
	Log   func(event string, fields ...events.Field) // where it is written down that it was said
}

// Make returns a hold that begins now and lasts for a time, without end when 0.
func (h *Holds) Make(kind, reason string, lasts time.Duration) spec.Hold {
	hold := spec.Hold{Kind: kind, Reason: reason, Author: h.By, Since: time.Now().Unix()}
	if lasts > 0 {
		hold.Until = hold.Since + int64(lasts/time.Second)
	}
	return hold
}

// RecordHold writes down what an operator says.
func (h *Holds) RecordHold(event string, hold spec.Hold, generation uint64) {
	h.Log(event, append([]events.Field{events.With("generation", generation)}, fieldsOf(hold)...)...)
}

func fieldsOf(hold spec.Hold) []events.Field {
	fields := []events.Field{events.With("why", hold.Reason)}
	if hold.Until != 0 {
		fields = append(fields, events.With("until", state.Time(hold.Until).Format(time.RFC3339)))
	}
	return fields
}

// Freeze has the node keep what it has, until Forward or its time is over.
func (h *Holds) Freeze(reason string, lasts time.Duration) error {
	hold := h.Make(spec.HoldFreeze, reason, lasts)
	return h.change(func(s *state.State) { s.Keep(hold) }, "frozen", fieldsOf(hold)...)
}

// Forward ends what Freeze, Rollback and Pin began.
func (h *Holds) Forward(why string) error {
	now, err := h.Owner.Read()
	if err != nil || now.State.Tracking == spec.Following {
		return err
	}
	return h.change(func(s *state.State) { s.Follow(time.Now().Unix()) }, "forward", events.With("why", why))
}

// Expire ends a hold whose time is over.
func (h *Holds) Expire() error {
	now, err := h.Owner.Read()
	if err != nil {
		return err
	}
	return h.Forward("the time of the " + now.State.Hold.Kind + " is over")
}

// Pause has the node change nothing, until Resume or its time is over. It looks and
// reports all the same.
func (h *Holds) Pause(reason string, lasts time.Duration) error {
	hold := h.Make(spec.HoldPause, reason, lasts)
	return h.change(func(s *state.State) { s.Paused = &hold }, "paused", fieldsOf(hold)...)
}

// Resume ends that. A pause of the fleet is the fleet's to end.
func (h *Holds) Resume() error {
	now, err := h.Owner.Read()
	if err != nil || now.State.Paused == nil {
		return err
	}
	return h.change(func(s *state.State) { s.Paused = nil }, "resumed")
}

// change saves what an operator says, and writes down that it was said.
func (h *Holds) change(change func(*state.State), event string, fields ...events.Field) error {
	var generation uint64
	err := h.Owner.Commit(record.Change{State: func(s *state.State) {
		change(s)
		if best := s.Best(); best != nil {
			generation = best.Generation
		}
	}})
	if err == nil {
		h.Log(event, append([]events.Field{events.With("generation", generation)}, fields...)...)
	}
	return err
}

// A Choice is one of the generations that a node ran well, the newest first; nil where none
// is meant.
type Choice func(kept []state.Generation, now state.Generation) *state.Generation

// Earlier chooses the one before the one that runs.
func Earlier(kept []state.Generation, now state.Generation) *state.Generation {
	return first(kept, func(g state.Generation) bool { return decide.Older(g, now) && g.Overlay != now.Overlay })
}

// Numbered chooses the one of a number.
func Numbered(generation uint64) Choice {
	return func(kept []state.Generation, _ state.Generation) *state.Generation {
		return first(kept, func(g state.Generation) bool { return g.Generation == generation })
	}
}

func first(kept []state.Generation, meant func(state.Generation) bool) *state.Generation {
	i := slices.IndexFunc(kept, meant)
	if i < 0 {
		return nil
	}
	return &kept[i]
}

// NotKept is for a choice that this node does not have, with the generations that it has.
type NotKept []state.Generation

func (NotKept) Error() string { return "this node keeps no such generation" }

// Hint says which ones there are.
func (k NotKept) Hint() string {
	list := plain.Each(k, func(g state.Generation) string { return fmt.Sprint(g.Generation) })
	return "it keeps " + strings.Join(list, ", ") + "; 'caisson rollback' gives a node any other"
}
