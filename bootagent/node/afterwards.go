// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// afterwards judges the node by the overlay's checks after an operation disturbed it.
// It only reads what [LookAfter] has seen: the node's lock is held here.
type afterwards struct {
	blank  gate.Record // of this root and overlay
	checks []spec.HealthCheck
	up     func() time.Duration
}

func (n *Node) afterwards(found *track.Found) afterwards {
	return afterwards{gate.Record{Root: n.scopes.Root + "@" + n.scopes.Kernel, Overlay: found.Generation.Overlay}, found.Overlay.Gates.Checks, n.up}
}

// noted returns the notes of one operation, nil where they are of another root or
// overlay.
func (a afterwards) noted(notes string) (*gate.Record, error) {
	r, err := gate.Load(notes)
	if err != nil || !r.Of(a.blank.Root, a.blank.Overlay) {
		return nil, err
	}
	return r, nil
}

// Judge says whether the node is well. What has no notes yet gets them.
func (a afterwards) Judge(_ context.Context, notes string) (operation.Judgement, string) {
	r, err := a.noted(notes)
	if err == nil && r == nil {
		r = &a.blank
		r.Began = seconds(a.up())
		err = r.Save(notes)
	}
	if err != nil {
		return operation.Judging, err.Error()
	}
	switch v := r.Judge(a.checks); v.State {
	case gate.Passed:
		return operation.Well, ""
	case gate.Failed:
		return operation.Unwell, v.Why
	default:
		return operation.Judging, v.Why
	}
}

// glance is what is looked at after one operation.
type glance struct {
	notes  string
	record gate.Record
}

// glances returns what is to be looked at.
func (n *Node) glances() (a afterwards, all []glance, err error) {
	found, err := n.running()
	if err != nil || found.Overlay.Gates == nil {
		return a, nil, err
	}
	a = n.afterwards(found)
	names, err := n.operations(found).Judged()
	if err != nil {
		return a, nil, err
	}
	for _, name := range names {
		switch r, err := a.noted(name); {
		case err != nil:
			return a, nil, err
		case r != nil && r.Judge(a.checks).State == gate.Waiting:
			all = append(all, glance{name, *r})
		}
	}
	return a, all, nil
}

// LookAfter looks once at the node for the operations that have disturbed it, and
// returns how long to wait before the next look, 0 when nothing is to be looked at.
// What follows from it is done by the next [Node.Operate].
//
// The looking holds no lock, as that of [Judge].
func LookAfter(ctx context.Context, o Options) (wait time.Duration, err error) {
	n, err := Read(ctx, o, nil)
	if err != nil {
		return 0, err
	}
	a, before, err := n.glances()
	if err = errors.Join(err, n.Close()); err != nil || len(before) == 0 {
		return 0, err
	}
	looked := make([]gate.Record, len(before))
	for i, b := range before {
		looked[i] = n.prober().Look(ctx, b.record, a.checks)
	}
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if n, err = Open(ctx, o, nil); err != nil {
		return 0, err
	}
	wait, err = n.lookedAfter(before, looked)
	return wait, errors.Join(err, n.Close())
}

// lookedAfter notes what was seen, where that still means anything.
func (n *Node) lookedAfter(before []glance, looked []gate.Record) (wait time.Duration, err error) {
	a, now, err := n.glances()
	if err != nil {
		return 0, err
	}
	for _, g := range now {
		for i, b := range before {
			if b.notes != g.notes || b.record.Began != g.record.Began {
				continue
			}
			if err := looked[i].Save(g.notes); err != nil {
				return 0, err
			}
			g.record = looked[i]
		}
		next := max(time.Second, time.Duration(g.record.Judge(a.checks).Next-seconds(n.up()))*time.Second)
		if wait == 0 || next < wait {
			wait = next
		}
	}
	return wait, nil
}
