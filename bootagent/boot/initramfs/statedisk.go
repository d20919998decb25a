// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/disk"
	"github.com/caisson-os/caisson/bootagent/boot/root"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// stateDisk is the node's memory: the state disk, or a directory in memory where there is none.
type stateDisk struct {
	say     say
	made    func() // notes progress
	opened  func() // is called for each disk or directory that is found
	machine *machine

	finder   *disk.Finder
	device   string // of the state partition, "" without one
	readOnly error  // why it cannot be written to
	failed   bool   // it could be at first
	troubles []string
	folder   *state.Folder
	store    *layers.Store
	trees    *stage.Trees // taken from the store once a boot
	canCheck func() error // why the kernel cannot check images while they are read; nil is [layers.CanCheck]
}

// open finds the disk, which may be there later than the loader.
func (d *stateDisk) open() error {
	if d.use(diskPatience("/sys")) {
		return nil
	}
	d.say("no state disk: nothing is remembered over a reboot")
	if err := d.useFolder(paths.Run+"/state", paths.RunStore); err != nil {
		return err
	}
	d.opened()
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
func (d *stateDisk) trouble(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	d.say("%s", text)
	if !slices.Contains(d.troubles, text) { // a loader may try the same for hours
		d.troubles = append(d.troubles, text)
	}
}

// late looks again. A controller may take longer for its disks than the
// loader waits for them, and a node that does not see its disk has no floor. Where
// there is none and the site asks for it, one is made: now, and not before, since an
// empty disk is there at once and the known one may take longer.
func (d *stateDisk) late() {
	if d.device != "" || d.finder == nil {
		return
	}
	patience := time.Duration(0)
	if d.machine.coldplug() || d.finder.Ask != nil {
		patience = diskPatience("/sys")
	}
	if d.use(patience) {
		return
	}
	d.made()
	made, note := d.finder.Make()
	if note != "" {
		d.say("%s", note)
	}
	if made != "" {
		d.say("made a state disk of %s, which was empty", made)
		d.use(diskPatience("/sys"))
	}
}

// use makes the state disk the node's memory, and reports whether there is one
// that can be. One whose content cannot be used is set aside like one that does not
// mount: the signed overlays lead to a running node without it.
func (d *stateDisk) use(patience time.Duration) bool {
	const at = paths.RunDisk
	found := d.finder.Open(at, patience)
	if found == nil {
		return false
	}
	err := d.finder.Sweep(at)
	if err == nil {
		err = d.useFolder(at, at+"/store")
	}
	if err != nil {
		d.trouble("state disk %s is not used: %v", found.Device, errors.Join(err, unix.Unmount(at, unix.MNT_DETACH)))
		return false
	}
	d.device, d.readOnly = found.Device, found.ReadOnly
	d.say("state disk %s", d.device)
	d.opened()
	if d.readOnly != nil {
		d.trouble("state disk %s can only be read: what this boot writes is lost with it, no newer generation is begun: %v", d.device, d.readOnly)
	} else if err := d.finder.Claim(at); err != nil {
		d.trouble("state disk %s: %v", d.device, err)
	}
	return true
}

// again goes on with what the state disk has after it failed in the middle of a boot: to be
// read only, or, where not even that goes, without it. It does so once: a second failure is
// one that it cannot help.
func (d *stateDisk) again(why error) {
	if !d.lasting() || d.failed {
		return
	}
	d.failed = true
	const at = paths.RunDisk
	d.trees = nil // they are of the mount that is gone
	err := d.finder.Again(d.device, at)
	if err == nil {
		if err = d.useFolder(at, at+"/store"); err == nil {
			d.readOnly = why
			d.trouble("state disk %s can only be read: what this boot writes is lost with it, no newer generation is begun: %v", d.device, why)
			return
		}
	}
	d.trouble("state disk %s is not used any more: %v", d.device, err)
	d.device = ""
	fault.Say(d.say, d.useFolder(paths.Run+"/state", paths.RunStore))
}

// settle leaves the state disk as a shutdown does: a file system that can only be read
// has nothing in its log. A disk that does not answer is not waited for.
func (d *stateDisk) settle() {
	if !d.lasting() {
		return
	}
	done := make(chan error, 1)
	go func() { done <- disk.Settle(paths.RunDisk) }()
	select {
	case err := <-done:
		fault.Say(d.say, err)
	case <-time.After(5 * time.Second):
		d.say("the state disk does not answer")
	}
}

// lasting reports whether what is stored now is there after a kexec.
func (d *stateDisk) lasting() bool { return d.device != "" && d.readOnly == nil }

func (d *stateDisk) useFolder(at, store string) error {
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
	d.folder, d.store = folder, s
	f := d.follower(nil)
	f.Say = d.trouble
	return f.Recover()
}

// follower returns what follows a source for this node; nil leaves it what the disk has.
func (d *stateDisk) follower(from oci.Source) *track.Tracker {
	return &track.Tracker{Source: from, Bootstrap: d.machine.bootstrap, Identity: d.machine.id, Folder: d.folder, Build: d.machine.build,
		Say: d.say, CoreOnly: true, Epochs: d.machine.epochs}
}

// hasGood reports whether this node has run a generation that it may run again.
func (d *stateDisk) hasGood() bool {
	s, err := d.folder.Load()
	return err == nil && s.Current != nil
}

func (d *stateDisk) stager(from oci.Source) stage.Stager {
	s := stage.Stager{Store: d.store, From: from, Talk: d.machine.limits.talk, Say: d.say}
	if known, err := d.folder.Load(); err == nil { // what a lost state knew of is fetched again
		s.Kept = known.Layers()
	}
	return s
}

// takeTrees says why this boot's images are not checked while they are read. Where they are, it
// has the boot after this one read all images, unless the agent says before that this
// one was good.
func (d *stateDisk) takeTrees() (*stage.Trees, error) {
	if err := d.cannotCheck(); err != nil {
		return nil, err
	}
	if d.trees == nil {
		sound, err := d.store.TakeSound()
		fault.Say(d.say, fault.In(err, "all images are read"))
		d.trees = &stage.Trees{Sound: sound}
	}
	return d.trees, nil
}

func (d *stateDisk) cannotCheck() error {
	switch {
	case d.device == "":
		return root.ErrInMemory
	case d.readOnly != nil:
		return errors.New("the state disk can only be read")
	case d.canCheck != nil:
		return d.canCheck()
	}
	if err := d.machine.modules.Load("dm_verity"); err != nil { // which no device asks for
		return err
	}
	return layers.CanCheck()
}

// handDown is the bootstrap as the layer's agent, or its loader behind a kexec, reads it: the
// file as it is, or what a release is left with that does not know all of it. One that does
// not follow the chain of keys is given those that count now, at each boot.
func (d *stateDisk) handDown(layer *spec.Layer) ([]byte, error) {
	if spec.Missing(d.machine.bootstrap.Needs, layer.Features) == nil {
		return os.ReadFile(paths.Bootstrap)
	}
	return spec.Encode(d.follower(nil).Trusted().Without(layer.Features))
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

// keys are the keys of secrets on the state disk.
func (d *stateDisk) keys() secrets.Keys {
	return secrets.Keys{State: d.folder.Path(), Memory: paths.RunUnlocked, TPM: d.machine.tpm}
}

// unlock opens the keys of secrets that are sealed to the machine's TPM, while its register has what this
// loader is: the root's systemd extends it. No boot waits for that, or ends by it.
func (d *stateDisk) unlock() {
	if d.device == "" {
		return
	}
	err := mountRAM(paths.RunUnlocked)
	if err == nil {
		err = d.keys().Unlock(secrets.Loader{Approvals: spec.ApprovalsFile, Key: spec.ApprovalKeyFile, Carried: paths.Unlocked,
			Trial: !d.machine.trial.IsZero()})
	}
	fault.Say(d.say, fault.In(err, "keys of secrets that are sealed stay closed"))
}

// mountRAM mounts memory that is never swapped, for root alone.
func mountRAM(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Type == unix.RAMFS_MAGIC {
		return err
	}
	return unix.Mount("ramfs", dir, "ramfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700")
}

// carryKeys adds what is open to an archive for the next loader, which the stub gives nothing.
func (d *stateDisk) carryKeys(to *cpio.Archive) error {
	data, err := ownfiles.ReadSecret(filepath.Join(paths.RunUnlocked, secrets.OpenedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		to.File(paths.Unlocked+"/"+secrets.OpenedFile, data, 0o600)
	}
	return err
}
