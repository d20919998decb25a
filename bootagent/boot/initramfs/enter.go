// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/handover"
	"github.com/caisson-os/caisson/bootagent/boot/kernel/apparmor"
	"github.com/caisson-os/caisson/bootagent/boot/network/networkd"
	"github.com/caisson-os/caisson/bootagent/boot/root"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/sense/deadline"
	"github.com/caisson-os/caisson/bootagent/tell/trace"
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
	if b.net != nil && b.lease != nil {
		b.handNetwork(&made.Node)
	}
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
	if err := b.leaveRecord(layer); err != nil {
		return err
	}
	b.say("entering the layer, root %s", b.record.RootID)
	b.note(about(b.record.Generation, spec.Event{Event: spec.EventEntered, Transition: b.transition}))
	for _, s := range append(b.arp, &b.devkmsg, &b.oops) {
		if err := s.restore(); err != nil {
			b.say("%v", err)
		}
	}
	if err := b.watchdog.Load().Feed(); err != nil { // the next to do so is systemd
		b.say("%v", err)
	}
	return switchRoot(newRoot, "/sbin/init")
}

// handNetwork ends what the loader does on the network, and leaves to the new root's
// systemd-networkd what it will find to be its own: interfaces of the same names.
func (b *boot) handNetwork(n *handover.Node) {
	if err := b.net.Leave(b.lease); err != nil {
		b.say("%v", err)
	}
	n.Network = b.net.Under(b.lease)
	lease, err := b.net.Rename(b.lease, networkd.Boot{Lease: b.lease, Made: n.Network}.Names(n.Overlay.Network))
	if err != nil {
		b.say("the new root sets up its network again: %v", err)
	}
	if lease != b.lease {
		n.Lease, n.Network = lease, b.net.Under(lease)
	}
}

// forRoot is a site.cpio's document without what only a loader wants of it: the rows of all
// nodes' networks, which the service would read each time. All else stays as it stands, in
// its order: a document has one encoding, and may have keys of a later release.
func forRoot(bootstrap []byte) []byte {
	var left bytes.Buffer
	d := json.NewDecoder(bytes.NewReader(bootstrap))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return bootstrap // who reads it says what is wrong
	}
	for d.More() {
		key, err := d.Token()
		var value json.RawMessage
		if err == nil {
			err = d.Decode(&value)
		}
		if err != nil {
			return bootstrap // as above
		}
		name, _ := key.(string)
		switch name {
		case "network", "nodes":
			continue
		case "needs":
			if value = needsOfRoot(value); value == nil {
				continue
			}
		}
		fmt.Fprintf(&left, ",%q:%s", name, value)
	}
	if left.Len() == 0 {
		return bootstrap
	}
	return append(append([]byte("{"), left.Bytes()[1:]...), '}')
}

// needsOfRoot is a list of needs without what only a loader must know, nil where nothing is
// left.
func needsOfRoot(list json.RawMessage) json.RawMessage {
	var needs []string
	if json.Unmarshal(list, &needs) != nil {
		return list
	}
	needs = slices.DeleteFunc(needs, func(need string) bool { return need == spec.BootNetworkFeature })
	if len(needs) == 0 {
		return nil
	}
	text, err := json.Marshal(needs)
	if err != nil {
		return list
	}
	return text
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
// But for the bootstrap it does not ask which features the layer's agent has: every agent from
// 0.9.0 on reads the record, and ends the deadline by deleting its file. What a later loader
// wants of an agent beyond that gets a row in the table of features, and is asked for here.
func (b *boot) leaveRecord(layer *spec.Layer) error {
	bootstrap, err := b.handDown(layer)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(paths.RunBootstrap, forRoot(bootstrap), 0o600); err != nil {
		return err
	}
	if b.unproven {
		if err := deadline.Begin(paths.RunDeadline, trace.Uptime()); err != nil {
			return err
		}
	}
	return state.SaveBoot(paths.RunBoot, &b.record)
}
