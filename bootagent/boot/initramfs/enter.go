// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/handover"
	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/boot/root"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/sense/uptime"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/bootagent/tpm"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// makeRoot stacks the layer, and makes it the node.
func (b *boot) makeRoot(context.Context) error {
	made := root.Root{At: newRoot, Images: paths.RunImages, Upper: paths.RunUpper, Store: b.disk.store,
		Layer: &b.choice.layer, Trace: &b.trace,
		WhenRead: b.choice.whenRead, ReadAll: func(why error) error { return b.chooser.prep.readAll(b.choice.layer, why) }, Node: handover.Node{
			Overlay: b.choice.overlay, State: b.disk.folder, Disk: b.disk.device != "", ReadOnly: b.disk.readOnly != nil,
			Watchdog: b.watchdog.Load().Timeout(), Unproven: b.attempt.unproven, Network: table.Boot{Lease: b.ways.lease}, Say: b.say}}
	if len(b.machine.id.UUIDs) > 0 {
		made.Node.UUID = b.machine.id.UUIDs[0]
	}
	if b.ways.net != nil && b.ways.lease != nil {
		b.ways.handOver(&made.Node)
	}
	b.record = b.begunRecord()
	if err := made.Make(&b.record); err != nil {
		return err
	}
	fault.Say(b.say, fault.In(unix.Sethostname([]byte(b.choice.overlay.Node)), "set host name"))
	return nil
}

// begunRecord returns what the record of this boot says before there is a root.
func (b *boot) begunRecord() record.Boot {
	c := b.choice
	return record.Boot{Mode: spec.ModeNetboot, Generation: c.generation, Layer: c.layer, Images: c.images, Source: c.source,
		Sync: c.sync, SyncDetail: c.detail, Disk: b.disk.device, Live: record.Live{Had: c.had, Began: c.had}}
}

// enter gives back what the loader changed for itself, and switches to the new root. It returns
// only with an error.
func (b *boot) enter(context.Context) error {
	b.say("entering the layer, root %s", b.record.RootID)
	b.notes.note(about(b.record.Generation, spec.Event{Event: spec.EventEntered, Transition: b.notes.transition}))
	for _, s := range append(b.ways.arp, b.settings...) {
		fault.Say(b.say, s.Restore())
	}
	if err := b.watchdog.Load().Feed(); err != nil { // the next to do so is systemd
		b.say("%v", err)
	}
	return kernel.SwitchRoot(newRoot, "/sbin/init")
}

// handOver ends what the loader does on the network, and leaves to the new root's
// systemd-networkd what it will find to be its own: interfaces of the same names.
func (w *ways) handOver(n *handover.Node) {
	fault.Say(w.say, w.net.Leave(w.lease))
	n.Network.Made = w.net.Under(w.lease)
	lease, err := w.net.Rename(w.lease, n.Network.Names(n.Overlay.Network))
	fault.Say(w.say, fault.In(err, "the new root sets up its network again"))
	if lease != w.lease {
		n.Network = table.Boot{Lease: lease, Made: w.net.Under(lease)}
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
			var needs []string // but for what only a loader must know
			if json.Unmarshal(value, &needs) != nil {
				return bootstrap // as above
			}
			needs = slices.DeleteFunc(needs, func(need string) bool { return need == spec.BootNetworkFeature })
			if len(needs) == 0 {
				continue
			}
			if value, err = json.Marshal(needs); err != nil {
				return bootstrap // strings have an encoding
			}
		}
		fmt.Fprintf(&left, ",%q:%s", name, value)
	}
	if left.Len() == 0 {
		return bootstrap
	}
	return append(append([]byte("{"), left.Bytes()[1:]...), '}')
}

// loadPolicy puts the profiles into the kernel before the first process that
// they confine can start.
func (b *boot) loadPolicy(context.Context) error {
	policy := b.choice.layer.AppArmor
	if len(policy.Profiles) == 0 {
		return nil
	}
	if err := tpm.MountSecurityfs(); err != nil {
		return err
	}
	n, err := root.LoadProfiles(newRoot, policy)
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
func (b *boot) leaveRecord(context.Context) error {
	bootstrap, err := b.disk.handDown(&b.choice.layer)
	if err != nil {
		return err
	}
	if err := durable.WriteFile(paths.RunBootstrap, forRoot(bootstrap), 0o600); err != nil {
		return err
	}
	if b.attempt.unproven {
		if err := uptime.BeginDeadline(paths.RunDeadline, uptime.Now()); err != nil {
			return err
		}
	}
	b.record.Trace, b.record.DiskTrouble = b.trace.Steps(), b.disk.troubles
	return record.SaveBoot(paths.RunBoot, &b.record)
}

// mountBasics gives the loader what every program expects of a Linux system. The
// same mounts move on into the new root.
func mountBasics() error {
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
		// Images of a diskless node live here: as much as the machine can give.
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755,size=90%"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mount %s: %w", m.target, err)
		}
	}
	// what a kernel that died left
	_ = unix.Mount("pstore", events.PStore, "pstore", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "") // most machines have none
	for _, dir := range []string{paths.Run, "/tmp", "/etc", "/newroot"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}
