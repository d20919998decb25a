// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/apparmor"
	"github.com/caisson-os/caisson/bootagent/boot/handover"
	"github.com/caisson-os/caisson/bootagent/boot/root"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// enter stacks the layer, makes it the node and switches to it.
func (b *boot) enter(overlay *spec.Overlay, layer *spec.Layer) error {
	b.begin()
	b.progress.Made()
	made := root.Root{At: newRoot, Images: paths.RunImages, Upper: paths.RunUpper, Store: b.store, Layer: layer, Trace: &b.trace,
		WhenRead: b.whenRead, ReadAll: func(why error) error { return b.readAll(layer, why) }, Node: handover.Node{
			Overlay: overlay, State: b.folder, Disk: b.disk != "", ReadOnly: b.readOnly != nil,
			Watchdog: b.watchdog.Load().Timeout(), Unproven: b.unproven, Lease: b.lease, Say: b.say}}
	if len(b.id.UUIDs) > 0 {
		made.Node.UUID = b.id.UUIDs[0]
	}
	b.record.Disk = b.disk
	if err := made.Make(&b.record); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(overlay.Node)); err != nil {
		b.say("set host name: %v", err)
	}
	end := b.trace.Begin("policy")
	err := b.loadPolicy(layer)
	end(err)
	if err != nil {
		return err
	}
	b.record.Trace = b.trace.Steps()
	if err := b.leaveRecord(); err != nil {
		return err
	}
	b.say("entering the layer, root %s", b.record.RootID)
	b.note(b.about(b.record.Generation, spec.Event{Event: spec.EventEntered}))
	for _, s := range []*setting{&b.devkmsg, &b.oops} {
		if err := s.restore(); err != nil {
			b.say("%v", err)
		}
	}
	if err := b.watchdog.Load().Feed(); err != nil { // the next to do so is systemd
		b.say("%v", err)
	}
	return switchRoot(newRoot, "/sbin/init")
}

// loadPolicy puts the profiles into the kernel before the first process that
// they confine can start.
func (b *boot) loadPolicy(layer *spec.Layer) error {
	if len(layer.AppArmor.Profiles) == 0 {
		return nil
	}
	if err := unix.Mount("securityfs", "/sys/kernel/security", "securityfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil && err != unix.EBUSY {
		return fmt.Errorf("mount securityfs: %w", err)
	}
	n, err := apparmor.Load(newRoot, layer.AppArmor)
	if err != nil {
		return err
	}
	b.say("loaded %d AppArmor profiles", n)
	return nil
}

// leaveRecord writes what the service will read; /run moves on with the root.
//
// It does not ask which features the layer's agent has: every agent from 0.9.0 on reads the
// record, and ends the deadline by deleting its file. What a later loader wants of an agent
// beyond that gets a row in the table of features, and is asked for here.
func (b *boot) leaveRecord() error {
	bootstrap, err := os.ReadFile(paths.Bootstrap)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(paths.RunBootstrap, bootstrap, 0o600); err != nil {
		return err
	}
	if b.unproven {
		if err := durable.WriteFile(paths.RunDeadline, nil, 0o600); err != nil {
			return err
		}
	}
	return state.SaveBoot(paths.RunBoot, &b.record)
}
