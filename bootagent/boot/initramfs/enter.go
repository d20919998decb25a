// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/apparmor"
	"github.com/caisson-os/caisson/bootagent/boot/handover"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
)

// enter stacks the layer, makes it the node and switches to it.
func (b *boot) enter(overlay *spec.Overlay, layer *spec.Layer) error {
	b.begin()
	b.progress.Made()
	stack := layers.Stack{Mounts: paths.RunImages, Upper: paths.RunUpper, Target: newRoot}
	for _, image := range layer.Images {
		stack.Images = append(stack.Images, layers.Image{Path: b.store.Path(image.Digest), Type: image.MediaType})
	}
	end := b.trace.Begin("stack")
	err := stack.Mount()
	end(err)
	if err != nil {
		return err
	}
	node := handover.Node{Root: newRoot, Overlay: overlay, Version: layer.Version, State: b.folder, Disk: b.disk != "", ReadOnly: b.readOnly != nil,
		Watchdog: b.watchdog.Load().Timeout(), Unproven: b.unproven, Lease: b.lease, Say: b.say}
	if len(b.id.UUIDs) > 0 {
		node.UUID = b.id.UUIDs[0]
	}
	end = b.trace.Begin("handover")
	wrote, err := node.Do()
	end(err)
	if err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(overlay.Node)); err != nil {
		b.say("set host name: %v", err)
	}
	end = b.trace.Begin("policy")
	err = b.loadPolicy(layer)
	end(err)
	if err != nil {
		return err
	}
	b.record.Trace = b.trace.Steps()
	b.record.Node, b.record.Disk, b.record.Lease, b.record.Wrote = overlay.Node, b.disk, b.lease, wrote
	b.record.Originals, b.record.ReadOnly = node.Originals, b.readOnly != nil
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
func (b *boot) leaveRecord() error {
	var id [16]byte
	rand.Read(id[:])
	b.record.RootID = hex.EncodeToString(id[:])
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
