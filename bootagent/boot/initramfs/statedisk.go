// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/disk"
	"github.com/caisson-os/caisson/bootagent/boot/disk/e2fs"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/tell/blackbox"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
)

// openState finds the node's memory: the state disk, or a directory in memory.
func (b *boot) openState(context.Context) error {
	b.record.Mode = "netboot"
	b.finder = &disk.Finder{Sys: "/sys", Dev: "/dev", Scratch: paths.Run + "/look", Fleet: b.bootstrap.Fleet, Named: b.bootstrap.StateDisk,
		Ask: b.bootstrap.NewStateDisk, Say: b.trouble}
	if e2fs.Installed() {
		b.finder.Programs = watched{e2fs.Programs{}, b.progress.Made}
	}
	if len(b.id.UUIDs) > 0 {
		b.finder.Machine = b.id.UUIDs[0]
	}
	if b.useDisk(diskPatience("/sys")) {
		return nil
	}
	b.say("no state disk: nothing is remembered over a reboot")
	if err := b.useFolder(paths.Run+"/state", paths.RunStore); err != nil {
		return err
	}
	b.lookBack(blackbox.PStore)
	return nil
}

// watched are programs that each count as progress: every one of them ends in time, and how
// many there are depends on how many disks look like this node's.
type watched struct {
	disk.Programs
	made func()
}

// Make implements disk.Programs.
func (w watched) Make(device, label string, offset, bytes int64) error {
	w.made()
	return w.Programs.Make(device, label, offset, bytes)
}

// Preen implements disk.Programs.
func (w watched) Preen(device string, force bool) (string, error) {
	w.made()
	return w.Programs.Preen(device, force)
}

// trouble says something about the state disk, and notes it for the node's status.
func (b *boot) trouble(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	b.say("%s", text)
	if !slices.Contains(b.record.DiskTrouble, text) { // a loader may try the same for hours
		b.record.DiskTrouble = append(b.record.DiskTrouble, text)
	}
}

// lateState looks again. A controller may take longer for its disks than the
// loader waits for them, and a node that does not see its disk has no floor. Where
// there is none and the site asks for it, one is made: now, and not before, since an
// empty disk is there at once and the known one may take longer.
func (b *boot) lateState() {
	if b.disk != "" || b.finder == nil {
		return
	}
	patience := time.Duration(0)
	if b.coldplug() || b.finder.Ask != nil {
		patience = diskPatience("/sys")
	}
	if b.useDisk(patience) {
		return
	}
	b.progress.Made()
	if made := b.finder.Make(); made != "" {
		b.say("made a state disk of %s, which was empty", made)
		b.useDisk(diskPatience("/sys"))
	}
}

// useDisk makes the state disk the node's memory, and reports whether there is one
// that can be. One whose content cannot be used is set aside like one that does not
// mount: the signed overlays lead to a running node without it.
func (b *boot) useDisk(patience time.Duration) bool {
	const at = paths.RunDisk
	d := b.finder.Open(at, patience)
	if d == nil {
		return false
	}
	err := b.finder.Sweep(at)
	if err == nil {
		err = b.useFolder(at, at+"/store")
	}
	if err != nil {
		b.trouble("state disk %s is not used: %v", d.Device, errors.Join(err, unix.Unmount(at, unix.MNT_DETACH)))
		return false
	}
	b.disk, b.readOnly = d.Device, d.ReadOnly
	b.say("state disk %s", d.Device)
	b.lookBack(blackbox.PStore)
	if d.ReadOnly != nil {
		b.trouble("state disk %s can only be read: what this boot writes is lost with it, no newer generation is begun: %v", d.Device, d.ReadOnly)
	} else if err := b.finder.Claim(at); err != nil {
		b.trouble("state disk %s: %v", d.Device, err)
	}
	return true
}

// again goes on with what the state disk has after it failed in the middle of a boot: to be
// read only, or, where not even that goes, without it. It does so once: a second failure is
// one that it cannot help.
func (b *boot) again(why error) {
	if !b.lasting() || b.failed {
		return
	}
	b.failed = true
	const at = paths.RunDisk
	b.trees = nil // they are of the mount that is gone
	err := b.finder.Again(b.disk, at)
	if err == nil {
		if err = b.useFolder(at, at+"/store"); err == nil {
			b.readOnly = why
			b.trouble("state disk %s can only be read: what this boot writes is lost with it, no newer generation is begun: %v", b.disk, why)
			return
		}
	}
	b.trouble("state disk %s is not used any more: %v", b.disk, err)
	b.disk = ""
	if err := b.useFolder(paths.Run+"/state", paths.RunStore); err != nil {
		b.say("%v", err)
	}
}

// settle leaves the state disk as a shutdown does: a file system that can only be read
// has nothing in its log. A disk that does not answer is not waited for.
func (b *boot) settle() {
	if !b.lasting() {
		return
	}
	done := make(chan error, 1)
	go func() { done <- disk.Settle(paths.RunDisk) }()
	select {
	case err := <-done:
		if err != nil {
			b.say("%v", err)
		}
	case <-time.After(5 * time.Second):
		b.say("the state disk does not answer")
	}
}

// lasting reports whether what is stored now is there after a kexec.
func (b *boot) lasting() bool { return b.disk != "" && b.readOnly == nil }

func (b *boot) useFolder(at, store string) error {
	folder, err := state.Open(at)
	if err != nil {
		return err
	}
	s, err := layers.OpenStore(store)
	if err == nil {
		err = s.Sweep()
	}
	if err != nil {
		return err
	}
	b.folder, b.store = folder, s
	f := b.follower()
	f.Say = b.trouble
	return f.Recover()
}

// diskPatience is how long to wait for the state partition: not at all where
// there is no disk, and a moment where partitions may still be read.
func diskPatience(sys string) time.Duration {
	disks, _ := filepath.Glob(filepath.Join(sys, "class/block/*/device")) // the pattern is valid
	for _, disk := range disks {
		if name := filepath.Base(filepath.Dir(disk)); !strings.HasPrefix(name, "sr") && !strings.HasPrefix(name, "fd") {
			return 3 * time.Second
		}
	}
	return 0
}
