// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/destination"
	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/stage"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// swap is what waits for a reboot as an operation of this node, nil on a host that
// caisson did not boot. What was published last says when, not what runs: else nobody
// could change that once something waits.
func (op *Operations) swap(running *track.Found) *operation.Swap {
	if op.Boot.Mode == spec.ModeAttached {
		return nil
	}
	s := &operation.Swap{Newest: op.Boot.Sync == spec.SyncCurrent, Reboot: func(ctx context.Context) error {
		_, _, err := op.destination.Reboot(ctx)
		return err
	}}
	if s.Runs, s.Unknown = spec.RootID(&running.Overlay, op.Boot.Generation.Layer); s.Unknown != nil {
		return s
	}
	by := running
	a, err := op.destination.Awaited(running)
	if err != nil {
		s.Unknown = fmt.Errorf("what waits for a reboot is not known: %w", err)
		return s
	}
	if a != nil && a.Found.Overlay.Swap != nil {
		by = a.Found
		if s.Waits, s.Unknown = spec.RootID(&by.Overlay, by.Overlay.Layer); s.Unknown == nil {
			s.Unknown = op.ready(s, a)
		}
	}
	if by.Overlay.Swap != nil {
		s.Policy, s.Maintenance = *by.Overlay.Swap, by.Overlay.Maintenance
	}
	return s
}

// ready says what keeps the machine from being rebooted at all, whatever its policy is.
func (op *Operations) ready(s *operation.Swap, a *destination.Awaited) error {
	st, err := op.Folder.Load()
	if err != nil {
		return err
	}
	judged, err := op.soak.Judging()
	if err != nil {
		return err
	}
	switch {
	case op.Boot.ReadOnly:
		s.Cannot = "the state disk takes no writes: nobody would know that it was tried"
	case op.Boot.Disk == "" && (op.Boot.Live.Had == "" || op.Boot.Live.Had == s.Waits):
		s.Cannot = "the registry had it when this machine started, which came up with something else: without a state disk nobody would know that it was tried"
	case op.Waiting(st):
		s.Busy, s.Why = spec.ForTurn, fmt.Sprintf("generation %d waits to be confirmed", st.Trial.Generation.Generation)
	case judged != nil && op.Boot.Live.Stuck == "": // else what waits may be what mends it
		s.Busy, s.Why = spec.ForGates, fmt.Sprintf("generation %d has to pass its gates", judged.Found.Generation.Generation)
	case op.InMemory() && a.Found.Overlay.Layer != op.Boot.Generation.Layer:
		switch next, class, _, err := op.destination.Destination(context.Background(), st, nil); { // it reads memory alone
		case err != nil:
			s.Busy, s.Why = spec.ForStaging, err.Error()
		case class == spec.ClassSoftReboot && len(next.Missing) > 0:
			s.Busy, s.Why = spec.ForStaging, "its images are not in memory yet"
		}
	case a.Found.Overlay.Layer != op.Boot.Generation.Layer:
		store, err := op.Store()
		if err != nil {
			return err
		}
		to := stage.Stager{Store: store, Say: op.Say}
		switch here, err := to.Here(context.Background(), a.Found.Overlay.Layer); { // it reads the disk alone
		case err != nil:
			return err
		case !here:
			s.Busy, s.Why = spec.ForStaging, "its layer is not on the state disk yet"
		}
	}
	return nil
}
