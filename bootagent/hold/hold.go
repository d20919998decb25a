// SPDX-License-Identifier: Apache-2.0

// Package hold keeps what an operator says of a node: that it keeps its content (freeze,
// rollback, pin), until forward, or that nothing is changed (pause), until resume. A change
// to another generation is made by package cycle.
package hold

import (
	"time"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/session"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/spec"
)

// Holds are those of an open node.
type Holds struct{ *session.Session }

// New returns the holds of an open node.
func New(s *session.Session) *Holds { return &Holds{s} }

// Make returns a hold that begins now and lasts for a time, without end when 0.
func (h *Holds) Make(kind, reason string, lasts time.Duration) spec.Hold {
	hold := spec.Hold{Kind: kind, Reason: reason, Author: h.Options.By, Since: time.Now().Unix()}
	if lasts > 0 {
		hold.Until = hold.Since + int64(lasts/time.Second)
	}
	return hold
}

// RecordHold writes down what an operator says.
func (h *Holds) RecordHold(event string, hold spec.Hold, generation uint64) {
	fields := []events.Field{events.With("generation", generation), events.With("why", hold.Reason)}
	if hold.Until != 0 {
		fields = append(fields, events.With("until", state.Time(hold.Until).Format(time.RFC3339)))
	}
	h.Record(event, fields...)
}

// Freeze has the node keep what it has, until Forward or its time is over.
func (h *Holds) Freeze(reason string, lasts time.Duration) error {
	hold := h.Make(spec.HoldFreeze, reason, lasts)
	s, err := h.Folder.Load()
	if err != nil {
		return err
	}
	s.Keep(hold)
	if err := h.Folder.Save(s); err != nil {
		return err
	}
	h.RecordHold("frozen", hold, numberOf(s.Best()))
	return nil
}

// Forward ends what Freeze, Rollback and Pin began.
func (h *Holds) Forward(why string) error {
	s, err := h.Folder.Load()
	if err != nil || s.Tracking == spec.Following {
		return err
	}
	s.Follow(time.Now().Unix())
	if err := h.Folder.Save(s); err != nil {
		return err
	}
	h.Record("forward", events.With("generation", numberOf(s.Best())), events.With("why", why))
	return nil
}

// Expire ends a hold whose time is over.
func (h *Holds) Expire() error {
	s, err := h.Folder.Load()
	if err != nil {
		return err
	}
	return h.Forward("the time of the " + s.Hold.Kind + " is over")
}

// Pause has the node change nothing, until Resume or its time is over. It looks and
// reports all the same.
func (h *Holds) Pause(reason string, lasts time.Duration) error {
	hold := h.Make(spec.HoldPause, reason, lasts)
	s, err := h.Folder.Load()
	if err != nil {
		return err
	}
	s.Paused = &hold
	if err := h.Folder.Save(s); err != nil {
		return err
	}
	h.RecordHold("paused", hold, numberOf(s.Best()))
	return nil
}

// Resume ends that. A pause of the fleet is the fleet's to end.
func (h *Holds) Resume() error {
	s, err := h.Folder.Load()
	if err != nil || s.Paused == nil {
		return err
	}
	s.Paused = nil
	if err := h.Folder.Save(s); err != nil {
		return err
	}
	h.Record("resumed", events.With("generation", numberOf(s.Best())))
	return nil
}

// numberOf is the number of a generation, 0 of none.
func numberOf(g *state.Generation) uint64 {
	if g == nil {
		return 0
	}
	return g.Generation
}
