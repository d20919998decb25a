// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/apparmor"
	"github.com/caisson-os/caisson/bootagent/items"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"golang.org/x/sys/unix"
)

// remember keeps the sync axis in the boot record. An attached host has none.
func (n *Node) remember() error {
	if n.boot.Mode == spec.ModeAttached {
		return nil
	}
	return state.SaveBoot(n.path(paths.RunBoot), n.boot)
}

// Status looks anew at everything and writes nothing.
func (n *Node) Status(ctx context.Context) (*spec.Status, error) {
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	drift, checkErr := items.Preview(ctx, n.items(found.Overlay.Items))
	last := n.last()
	result := items.Result{Drift: drift, Health: spec.HealthOK, Err: checkErr}
	result.Age(last.Drift, time.Now(), uptime())
	result.Items = last.Items
	if checkErr != nil {
		result.Health = spec.HealthDegraded
	}
	for _, d := range drift {
		if d.Action != spec.ActionDefer {
			result.Health = spec.HealthDegraded
		}
	}
	return n.compose(found, result)
}

// report is the status after a run; it is kept for those who only read.
func (n *Node) report(found *track.Found, result items.Result) (*spec.Status, error) {
	result.Age(n.last().Drift, time.Now(), uptime())
	status, err := n.compose(found, result)
	if err != nil {
		return nil, err
	}
	data, err := spec.Encode(status)
	if err != nil {
		return nil, err
	}
	return status, durable.WriteFile(n.path(paths.RunStatus), data, 0o640) // values may be confidential
}

// last is the status after the last run, the zero one when there was none.
func (n *Node) last() spec.Status {
	var last spec.Status
	data, err := os.ReadFile(n.path(paths.RunStatus))
	if err != nil || json.Unmarshal(data, &last) != nil {
		return spec.Status{}
	}
	return last
}

// uptime is how long this kernel runs.
func uptime() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // every kernel that has openat2 has it
	}
	return time.Duration(now.Nano())
}

func (n *Node) compose(found *track.Found, result items.Result) (*spec.Status, error) {
	s, err := n.folder.Load()
	if err != nil {
		return nil, err
	}
	status := &spec.Status{
		APIVersion: spec.APIVersion, Kind: spec.KindStatus,
		Node: found.Overlay.Node, Fleet: found.Overlay.Fleet, Mode: n.boot.Mode,
		Tracking: s.Tracking, Sync: n.boot.Sync, SyncDetail: n.boot.SyncDetail, Health: result.Health, Source: n.boot.Source,
		Epoch: found.Generation.Epoch, Generation: found.Generation.Generation,
		Overlay: found.Generation.Overlay, Layer: found.Generation.Layer,
		RootID: n.scopes.Root, BootID: n.scopes.Kernel, Floor: s.Floor,
		Items: result.Items, Drift: result.Drift,
	}
	if s.Staged != nil {
		status.Staged = s.Staged.Overlay
	}
	policy, err := apparmor.Check(n.boot.Layer.AppArmor)
	if err != nil {
		policy = append(policy, spec.Drift{Item: "apparmor", Key: "profiles", Action: spec.ActionRefuse, Reason: err.Error()})
	}
	if len(policy) > 0 {
		status.Health = spec.HealthDegraded
		status.Drift = append(status.Drift, policy...)
	}
	for _, trouble := range n.boot.DiskTrouble {
		status.Health = spec.HealthDegraded
		status.Drift = append(status.Drift, spec.Drift{Item: "state", Key: "disk", Action: spec.ActionRefuse, Reason: trouble})
	}
	for _, lost := range s.Lost {
		status.Health = spec.HealthDegraded
		status.Drift = append(status.Drift, spec.Drift{Item: "state", Key: "lost", Action: spec.ActionRefuse, Reason: lost})
	}
	if status.Foreign, err = n.foreign(); err != nil {
		return nil, err
	}
	if status.Drift == nil {
		status.Drift = []spec.Drift{}
	}
	if status.Items == nil {
		status.Items = []spec.ItemStatus{}
	}
	return status, nil
}
