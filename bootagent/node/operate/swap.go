// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/node/destination"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/gate"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

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
func forgotten(live *state.Live, root string) bool {
	return live.Had == "" || live.Had == root && live.Began != root
}
