// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/bootagent/operation"
	"github.com/caisson-os/caisson/bootagent/stage"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/spec"
)

// swap is what waits for a reboot as an operation of this node, nil on a host that
// caisson did not boot. What was published last says when, not what runs: else nobody
// could change that once something waits.
func (n *Node) swap(running *track.Found) *operation.Swap {
	if n.boot.Mode == spec.ModeAttached {
		return nil
	}
	s := &operation.Swap{Newest: n.boot.Sync == spec.SyncCurrent, Reboot: func(ctx context.Context) error {
		_, _, err := n.Reboot(ctx)
		return err
	}}
	if s.Runs, s.Unknown = spec.RootID(&running.Overlay, n.boot.Generation.Layer); s.Unknown != nil {
		return s
	}
	by := running
	a, err := n.awaited(running)
	if err != nil {
		s.Unknown = fmt.Errorf("what waits for a reboot is not known: %w", err)
		return s
	}
	if a != nil && a.found.Overlay.Swap != nil {
		by = a.found
		if s.Waits, s.Unknown = spec.RootID(&by.Overlay, by.Overlay.Layer); s.Unknown == nil {
			s.Unknown = n.ready(s, a)
		}
	}
	if by.Overlay.Swap != nil {
		s.Policy, s.Maintenance = *by.Overlay.Swap, by.Overlay.Maintenance
	}
	return s
}

// ready says what keeps the machine from being rebooted at all, whatever its policy is.
func (n *Node) ready(s *operation.Swap, a *awaited) error {
	st, err := n.folder.Load()
	if err != nil {
		return err
	}
	judged, err := n.judging()
	if err != nil {
		return err
	}
	switch {
	case n.boot.ReadOnly:
		s.Cannot = "the state disk takes no writes: nobody would know that it was tried"
	case n.boot.Disk == "" && (n.boot.Live.Had == "" || n.boot.Live.Had == s.Waits):
		s.Cannot = "the registry had it when this machine started, which came up with something else: without a state disk nobody would know that it was tried"
	case n.waiting(st):
		s.Busy, s.Why = spec.ForTurn, fmt.Sprintf("generation %d waits to be confirmed", st.Trial.Generation.Generation)
	case judged != nil && n.boot.Live.Stuck == "": // else what waits may be what mends it
		s.Busy, s.Why = spec.ForGates, fmt.Sprintf("generation %d has to pass its gates", judged.found.Generation.Generation)
	case n.inMemory() && a.found.Overlay.Layer != n.boot.Generation.Layer:
		switch next, class, _, err := n.destination(context.Background(), st, nil); { // it reads memory alone
		case err != nil:
			s.Busy, s.Why = spec.ForStaging, err.Error()
		case class == spec.ClassSoftReboot && len(next.Missing) > 0:
			s.Busy, s.Why = spec.ForStaging, "its images are not in memory yet"
		}
	case a.found.Overlay.Layer != n.boot.Generation.Layer:
		store, err := n.store()
		if err != nil {
			return err
		}
		to := stage.Stager{Store: store, Say: n.say}
		switch here, err := to.Here(context.Background(), a.found.Overlay.Layer); { // it reads the disk alone
		case err != nil:
			return err
		case !here:
			s.Busy, s.Why = spec.ForStaging, "its layer is not on the state disk yet"
		}
	}
	return nil
}

// noteHad notes what the registry had when it was first asked since this machine
// started: what the loader had found there, too.
func (n *Node) noteHad(found *track.Found) error {
	if n.boot.Live.Had != "" {
		return nil
	}
	had, err := spec.RootID(&found.Overlay, found.Overlay.Layer)
	n.boot.Live.Had = had
	return err
}
