// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"time"

	"github.com/caisson-os/caisson/bootagent/gate"
	"github.com/caisson-os/caisson/bootagent/session"
	"github.com/caisson-os/caisson/bootagent/soak"
)

// glance is what is looked at after one operation.
type glance struct {
	notes  string
	record gate.Record
}

// glances returns what is to be looked at.
func (n *Node) glances() (a soak.Afterwards, all []glance, err error) {
	found, err := n.effect.Running()
	if err != nil || found.Overlay.Gates == nil {
		return a, nil, err
	}
	a = n.soak.Afterwards(found)
	names, err := n.operate.Engine(found).Judged()
	if err != nil {
		return a, nil, err
	}
	for _, name := range names {
		switch r, err := a.Noted(name); {
		case err != nil:
			return a, nil, err
		case r != nil && r.Judge(a.Checks).State == gate.Waiting:
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
func LookAfter(ctx context.Context, o session.Options) (wait time.Duration, err error) {
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
		looked[i] = n.soak.Prober().Look(ctx, b.record, a.Checks)
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
		next := max(time.Second, time.Duration(g.record.Judge(a.Checks).Next-session.Seconds(n.session.Up()))*time.Second)
		if wait == 0 || next < wait {
			wait = next
		}
	}
	return wait, nil
}
