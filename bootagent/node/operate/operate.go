// SPDX-License-Identifier: Apache-2.0

// Package operate makes the engine of a node's operations, see package operation: its
// clocks, its ledger, its turns, how the node is judged afterwards, and the swap of a layer,
// which is an operation as well. It keeps what an operator holds, too, see [Holds].
package operate

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/node/effect"
	"github.com/caisson-os/caisson/bootagent/node/soak"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tell/post"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Operations are those of an open node.
type Operations struct {
	Base         operation.Engine // what does not come of an overlay: its ledger, clocks and runner
	Root, Kernel string           // ids of the root and of the boot of its kernel
	Owner        *record.Owner
	Destination  *destination.Destination
	Effect       *effect.Effect
	Soak         *soak.Soak
	Post         *post.Post
	Decided      decide.Observer
}

// Engine is the engine for this node's operations. Its ledger is on the state
// disk, and lives as long as that: without one, a boot.
func (op *Operations) Engine(found *track.Found) *operation.Engine {
	e := op.Base
	e.Node, e.Servers = found.Overlay.Node, found.Overlay.Network.NTP
	e.Record = func(what string, o spec.Operation, detail string) {
		fields := []events.Field{events.With("operation", o.Name), events.With("id", o.ID), events.With("what", what)}
		if detail != "" {
			fields = append(fields, events.With("why", detail))
		}
		op.Effect.Log.Record("operation", fields...)
	}
	if g := found.Overlay.Gates; g != nil && len(g.Checks) > 0 {
		e.Gates = op.Soak.Afterwards(found)
	}
	e.Slots, e.Swap = op.Post.Slots(&found.Overlay), op.swap(found)
	return &e
}

// View says where the operations of an overlay stand.
func (op *Operations) View(found *track.Found) []spec.OperationStatus {
	return append(op.Engine(found).View(found.Overlay.Maintenance), op.Realtime(found)...)
}

// Realtime says what operations of that type do now.
func (op *Operations) Realtime(found *track.Found) (out []spec.OperationStatus) {
	if found.Overlay.Maintenance == nil {
		return nil
	}
	for _, r := range found.Overlay.Maintenance.Realtime {
		s := spec.OperationStatus{Name: r.Name, Type: spec.RealtimeType, State: spec.OperationHolding}
		if why := op.Effect.Late(found, &r); why != "" {
			s.State, s.For, s.Detail = spec.OperationWaiting, spec.ForWindow, why+"; until then drift is reported"
		}
		out = append(out, s)
	}
	return out
}

// Ask notes that an operator wants an operation of what runs to run: now, or else again, in
// its windows; runs is true where it runs already.
func (op *Operations) Ask(found *track.Found, name string, atOnce bool) (runs bool, err error) {
	if runs, err = op.Engine(found).Ask(found.Overlay.Maintenance, name, atOnce); err != nil || runs {
		return runs, err
	}
	what := "asked for again"
	if atOnce {
		what = "asked for now"
	}
	op.Effect.Log.Record("operation", events.With("operation", name), events.With("what", what))
	return false, nil
}

// Glances are the looks at a node for the operations that have disturbed it, by the checks
// of what runs.
type Glances struct {
	after soak.Afterwards
	of    []glance
}

// glance holds the gates' record after one operation.
type glance struct {
	notes  string // the file that it is noted in
	record gate.Record
}

// Glances returns the looks that are due.
func (op *Operations) Glances() (g Glances, err error) {
	found, err := op.Effect.Running()
	if err != nil || found.Overlay.Gates == nil {
		return g, err
	}
	g.after = op.Soak.Afterwards(found)
	names, err := op.Engine(found).Judged()
	if err != nil {
		return g, err
	}
	for _, name := range names {
		switch r, err := g.after.Noted(name); {
		case err != nil:
			return g, err
		case r != nil && r.Judge(g.after.Checks).State == gate.Waiting:
			g.of = append(g.of, glance{name, *r})
		}
	}
	return g, nil
}

// None reports whether there are none.
func (g Glances) None() bool { return len(g.of) == 0 }

// Look looks at the checks, once for each operation. It needs no lock.
func (g Glances) Look(ctx context.Context, by gate.Prober) []gate.Record {
	looked := make([]gate.Record, len(g.of))
	for i, one := range g.of {
		looked[i] = by.Look(ctx, one.record, g.after.Checks)
	}
	return looked
}

// NoteGlances notes what was seen, where that still means anything, and returns how long to wait
// before the next look, 0 when nothing is to be looked at.
func (op *Operations) NoteGlances(before Glances, looked []gate.Record) (wait time.Duration, err error) {
	now, err := op.Glances()
	if err != nil {
		return 0, err
	}
	for _, g := range now.of {
		for i, b := range before.of {
			if b.notes != g.notes || b.record.Began != g.record.Began {
				continue
			}
			if err := looked[i].Save(g.notes); err != nil {
				return 0, err
			}
			g.record = looked[i]
		}
		next := g.record.NextLook(now.after.Checks, op.Base.Up())
		if wait == 0 || next < wait {
			wait = next
		}
	}
	return wait, nil
}

// swap returns the generation that waits for a reboot as an operation of this node, nil on a host
// that caisson did not boot. What was published last says when, not what runs: else nobody could
// change that once something waits.
func (op *Operations) swap(running *track.Found) *operation.Swap {
	boot := op.Owner.Boot()
	if boot.Mode == spec.ModeAttached {
		return nil
	}
	s := &operation.Swap{Newest: boot.Sync == spec.SyncCurrent, Reboot: func(ctx context.Context) error {
		_, _, err := op.Destination.Reboot(ctx)
		return err
	}}
	if s.Runs, s.Unknown = spec.RootID(&running.Overlay, boot.Generation.Layer); s.Unknown != nil {
		return s
	}
	by := running
	a, err := op.Destination.Awaited(running)
	if err != nil {
		s.Unknown = fmt.Errorf("what waits for a reboot is not known: %w", err)
		return s
	}
	if a != nil && a.Found.Overlay.Swap != nil {
		by = a.Found
		if s.Waits, s.Unknown = spec.RootID(&by.Overlay, by.Overlay.Layer); s.Unknown == nil {
			s.Unknown = op.ready(s, running, a)
		}
	}
	if by.Overlay.Swap != nil {
		s.Policy, s.Maintenance = *by.Overlay.Swap, by.Overlay.Maintenance
	}
	return s
}

// ready says what keeps the machine from being rebooted at all, whatever its policy is.
func (op *Operations) ready(s *operation.Swap, running *track.Found, a *destination.Awaited) error {
	now, err := op.Owner.Read()
	if err != nil {
		return err
	}
	f := &decide.Facts{Event: decide.Swap}
	if f.Run, err = op.Phase(now, &running.Generation); err != nil {
		return err
	}
	f.Awaits.Uncounted = now.Boot.ReadOnly
	f.Awaits.Forgotten = now.Boot.Disk == "" && forgotten(&now.Boot.Live, s.Waits)
	if f.Awaits.Missing, err = op.missing(now, a); err != nil {
		return err
	}
	switch step := op.Decided.Next(f); step.Act {
	case decide.NeverReboot:
		s.Cannot = step.Why
	case decide.DeferReboot:
		s.Busy, s.Why = step.For, step.Why
	case decide.SetOut: // in its turn, see package operation
	}
	return nil
}

// missing says what of the root that waits is not here yet, "" where nothing is.
func (op *Operations) missing(now record.Snapshot, a *destination.Awaited) (string, error) {
	switch {
	case a.Found.Overlay.Layer == now.Boot.Generation.Layer:
		return "", nil
	case now.Boot.InMemory():
		next, class, _, err := op.Destination.Destination(context.Background(), now.State, nil) // it reads memory alone
		switch {
		case err != nil:
			return err.Error(), nil
		case class == spec.ClassSoftReboot && len(next.Missing) > 0:
			return "its images are not in memory yet", nil
		}
		return "", nil
	}
	store, err := op.Destination.Store()
	if err != nil {
		return "", err
	}
	to := stage.Stager{Store: store, Say: op.Effect.Log.Say}
	here, err := to.Here(context.Background(), a.Found.Overlay.Layer) // it reads the disk alone
	if err == nil && !here {
		return "its layer is not on the state disk yet", nil
	}
	if err == nil {
		err = op.Destination.Enters(store, a.Found.Overlay.Layer)
	}
	if refusal.Of(err) == refusal.Kernel {
		return err.Error(), nil
	}
	return "", err
}

// Phase returns the phase that this node is in.
func (op *Operations) Phase(now record.Snapshot, runs *state.Generation) (decide.Run, error) {
	root := decide.RunRoot{Attached: now.Boot.Mode == spec.ModeAttached, Begun: op.Effect.Begun(), Boot: op.Kernel, By: now.Boot.Generation,
		Runs: runs}
	if runs != nil {
		judged, err := gate.Load(filepath.Join(op.Base.Root, paths.RunGates))
		if err != nil {
			return decide.Run{}, err
		}
		root.Judged = judged.Of(op.Root, runs.Overlay)
		if !root.Attached {
			root.Takes = op.Destination.Candidate(now.State)
		}
	}
	return decide.ReadRun(now.State, &now.Boot.Live, root), nil
}

// forgotten reports whether a root may have been tried by a boot that remembers nothing: the
// registry had it when this machine started, as far as is known, and something else came up.
func forgotten(live *record.Live, root string) bool {
	return live.Had == "" || live.Had == root && live.Began != root
}

// [Holds] are an operator's orders to a node: that it keeps its content (freeze,
// rollback, pin), until forward, or that nothing is changed (pause), until resume. A change
// to another generation is made by package cycle.

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
