// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"time"

	"github.com/caisson-os/caisson/bootagent/node/session"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/spec"
)

// Afterwards judges the node by the overlay's checks after an operation disturbed it.
// It only reads what [LookAfter] has seen: the node's lock is held here.
type Afterwards struct {
	blank  gate.Record // of this root and overlay
	Checks []spec.HealthCheck
	up     func() time.Duration
}

// Afterwards returns what judges the node by the checks of what runs.
func (so *Soak) Afterwards(found *track.Found) Afterwards {
	return Afterwards{gate.Record{Root: so.Scopes.Root + "@" + so.Scopes.Kernel, Overlay: found.Generation.Overlay}, found.Overlay.Gates.Checks, so.Up}
}

// Noted returns the notes of one operation, nil where they are of another root or
// overlay.
func (a Afterwards) Noted(notes string) (*gate.Record, error) {
	r, err := gate.Load(notes)
	if err != nil || !r.Of(a.blank.Root, a.blank.Overlay) {
		return nil, err
	}
	return r, nil
}

// Judge says whether the node is well. What has no notes yet gets them.
func (a Afterwards) Judge(_ context.Context, notes string) (operation.Judgement, string) {
	r, err := a.Noted(notes)
	if err == nil && r == nil {
		r = &a.blank
		r.Began = session.Seconds(a.up())
		err = r.Save(notes)
	}
	if err != nil {
		return operation.Judging, err.Error()
	}
	switch v := r.Judge(a.Checks); v.State {
	case gate.Passed:
		return operation.Well, ""
	case gate.Failed:
		return operation.Unwell, v.Why
	default:
		return operation.Judging, v.Why
	}
}
