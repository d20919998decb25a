// SPDX-License-Identifier: Apache-2.0

// Package disk finds the partition that is this node's memory and mounts it.
//
// A partition is a candidate by its GPT name, [paths.StateLabel], or by the
// partition UUID that the site names. Whether it is this node's is decided by a
// list of checks, see partition.go: it is fixed to the machine, readable, and its owner
// record names this fleet and this machine. Nothing on it is signed, so this keeps
// mistakes and USB sticks out, not a person who opens the case.
//
// A partition that cannot be used is set aside, with the reason and a remedy on the
// console, and the node boots without it; one that can only be read is read. Where the
// site asks for it and there is none, an empty disk becomes one, see [Finder.Make]. The
// package does not know what the state means.
//
// Below that decision are three tools that ask nothing: [CheckBlank] reads whether a disk is
// empty, [Layout] is its partition table, [E2fsPrograms] its file system.
package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/spec"
)

// Mounter mounts file systems for a look and for use.
type Mounter interface {
	Mount(device, at string, readOnly bool) error
	Unmount(at string) error
	// Grow has a mounted file system take what its device has more, and gives it an
	// identifier of its own where it has that of an image.
	Grow(device, at string) error
	// Reread has the kernel read the partition table of a disk.
	Reread(device string) error
}

// Finder looks for the state disk of one node. It may look several times: disks
// take a while to appear.
type Finder struct {
	Sys, Dev string // /sys and /dev
	Scratch  string // directory where candidates are mounted for a look; made
	Fleet    string
	Machine  string             // SMBIOS UUID, "" where the firmware gives none
	Named    string             // partition UUID that the site names, "" for none
	Ask      *spec.NewStateDisk // what to make a state disk of where there is none; nil for nothing
	Say      func(format string, args ...any)
	Mounter  Mounter  // nil is the kernel
	Programs Programs // nil: this loader can neither make nor repair a file system

	begins int64 // where the partition of a new disk starts; 0 is gpt.Start

	opener func(w whole, flags int) (blockDevice, error) // nil opens the disk alone
	rules  check.List[*candidate]
	order  func(a, b *candidate) int // better
	judged map[string]*candidate     // by device
}

// Disk is a mounted state disk.
type Disk struct {
	Device   string
	ReadOnly error // why it cannot be written to; nil where it can
}

// Open looks for the state disk until it is there or patience ends, and mounts it
// at a directory. It returns nil where there is none that this node may use. What
// is set aside is said once.
func (f *Finder) Open(at string, patience time.Duration) *Disk {
	f.Mounter = cmp.Or[Mounter](f.Mounter, kernel{})
	if f.rules == nil {
		f.rules, f.order = rules, better
	}
	f.mend()
	found := f.wait(patience)
	var used *Disk
	for _, c := range found {
		if used != nil {
			f.aside(c, errors.New(used.Device+" is this node's"))
			continue
		}
		readOnly, err := f.prepare(c, at)
		if err != nil {
			f.aside(c, unusable(err))
			continue
		}
		used = &Disk{Device: c.device, ReadOnly: readOnly}
	}
	return used
}

// prepare grows, repairs and mounts a disk that is this node's. A disk that does not grow
// is used as it is.
func (f *Finder) prepare(c *candidate, at string) (readOnly, err error) {
	fault.Say(f.Say, fault.In(f.growPartition(c.partition), "state disk %s does not grow", c.device))
	if err := f.preen(c.device, false); err != nil {
		return nil, err
	}
	readOnly, err = f.mount(c.device, at)
	if err != nil || readOnly != nil {
		return readOnly, err
	}
	fault.Say(f.Say, fault.In(f.Mounter.Grow(c.device, at), "state disk %s does not grow", c.device))
	return nil, nil
}

// wait returns what may be used, best first. A disk that is known to be this node's
// ends the wait; a new one does not, since the known one may still appear.
func (f *Finder) wait(patience time.Duration) []*candidate {
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		found := f.look()
		if len(found) > 0 && found[0].known() || !time.Now().Before(end) {
			return found
		}
	}
}

// look judges the candidates that have appeared since the last look.
func (f *Finder) look() []*candidate {
	if f.judged == nil {
		f.judged = map[string]*candidate{}
	}
	for _, p := range partitions(f.Sys, f.Dev, f.Named) {
		if f.judged[p.device] != nil || f.Ask != nil && p.unfinished == StepMaking {
			continue // Make goes on with the latter
		}
		c := &candidate{partition: p, finder: f}
		f.judged[p.device] = c
		if err := f.rules.Run(c); err != nil {
			f.aside(c, err)
		}
	}
	var found []*candidate
	for _, c := range f.judged {
		if !c.aside {
			found = append(found, c)
		}
	}
	slices.SortFunc(found, f.order)
	return found
}

// aside notes that a candidate is not used, and says why.
func (f *Finder) aside(c *candidate, why error) {
	c.aside = true
	f.Say("state disk %s is not used: %v", c.device, why)
}

// better orders candidates: the one that the site names, those with a record of
// this node, the highest floor, the name. Of two copies of one disk the older would
// forget what the node has accepted since.
func better(a, b *candidate) int {
	return cmp.Or(
		first(a.named(), b.named()),
		first(a.known(), b.known()),
		cmp.Compare(b.floor.Epoch, a.floor.Epoch),
		cmp.Compare(b.floor.Generation, a.floor.Generation),
		cmp.Compare(a.device, b.device),
	)
}

func first(a, b bool) int {
	switch {
	case a && !b:
		return -1
	case b && !a:
		return 1
	}
	return 0
}

// peek mounts a candidate read-only for as long as do looks at it. Where that fails, the
// file system is looked at as well, whatever it says of itself.
func (f *Finder) peek(c *candidate, do func(dir string) error) error {
	err := f.peekOnce(c, do)
	if err == nil || f.Programs == nil {
		return err
	}
	if damage := f.preen(c.device, true); damage != nil {
		return unusable(errors.Join(err, damage))
	}
	return f.peekOnce(c, do)
}

func (f *Finder) peekOnce(c *candidate, do func(dir string) error) (err error) {
	if err := os.MkdirAll(f.Scratch, 0o700); err != nil {
		return err
	}
	if err := f.Mounter.Mount(c.device, f.Scratch, true); err != nil {
		return unusable(err)
	}
	defer func() { err = errors.Join(err, f.Mounter.Unmount(f.Scratch)) }()
	return do(f.Scratch)
}

// mount mounts the state disk at a directory, writable. A disk that only lets
// itself be read, as a worn-out one does, is read: what is written goes to memory
// above it, and is gone with the next boot. readOnly is then the reason.
func (f *Finder) mount(device, at string) (readOnly, err error) {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return nil, err
	}
	if readOnly = f.Mounter.Mount(device, at, false); readOnly == nil {
		return nil, nil
	}
	if err := f.toRead(device, at); errors.Is(err, errNotRead) {
		return nil, readOnly // the same reason, and what was tried first
	} else if err != nil {
		return nil, err
	}
	return readOnly, nil
}

var errNotRead = errors.New("the state disk cannot be read")

// toRead mounts a disk to be read, with memory over it that takes what is written.
func (f *Finder) toRead(device, at string) error {
	if err := f.Mounter.Mount(device, at, true); err != nil {
		return fmt.Errorf("%w: %w", errNotRead, err)
	}
	if err := shade(at); err != nil {
		return errors.Join(err, f.Mounter.Unmount(at))
	}
	return nil
}

// Again mounts a disk of this boot a second time, to be read only: kernels from 6.11 on let
// no part of an ext4 be read once a write to it has failed. What was written to memory above
// a disk that could only be read anyway is lost, so one is mounted again once.
func (f *Finder) Again(device, at string) error {
	if err := f.Mounter.Unmount(at); err != nil {
		return err
	}
	return f.toRead(device, at)
}

// shade stacks memory over a read-only directory.
func shade(at string) error {
	base := at + ".memory"
	upper, work := filepath.Join(base, "upper"), filepath.Join(base, "work")
	for _, dir := range []string{base, upper, work} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	options := "lowerdir=" + at + ",upperdir=" + upper + ",workdir=" + work + ",redirect_dir=off,metacopy=off,index=off,xino=off"
	return fault.In(unix.Mount("caisson-state", at, "overlay", unix.MS_NOSUID|unix.MS_NODEV, options),
		"stack memory over a read-only state disk")
}

// kernel mounts for real. ext4 is in every loader, xfs where the site names its
// module.
type kernel struct{}

func (kernel) Mount(device, at string, readOnly bool) error {
	var errs []error
	for _, fs := range []struct{ kind, unread string }{{"ext4", "noload"}, {"xfs", "norecovery"}} {
		flags := uintptr(unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOATIME)
		options := []string{""}
		if readOnly {
			// A log is replayed where the device lets itself be written to: without that
			// a disk that was cut off shows files that never were. Else it is left.
			flags, options = flags|unix.MS_RDONLY, []string{"", fs.unread}
		}
		for _, option := range options {
			err := unix.Mount(device, at, fs.kind, flags, option)
			if err == nil {
				return nil
			}
			errs = append(errs, fmt.Errorf("mount %s as %s: %w", device, fs.kind, err))
		}
	}
	return errors.Join(errs[0], errs[len(errs)-1])
}

// preen repairs a file system as far as that needs no question, and says what it did. A
// file system that it does not know is left as it is: the mount says what is wrong.
func (f *Finder) preen(device string, force bool) error {
	if f.Programs == nil || !IsExt4(device) {
		return nil
	}
	repaired, err := f.Programs.Preen(device, force)
	if err == nil && repaired != "" {
		f.Say("state disk %s was damaged, and is repaired: %s", device, repaired)
	}
	return err
}

// Settle makes a mounted state disk one that can only be read: what its log has is in its
// place then, as after a shutdown.
func Settle(at string) error {
	return fault.In(unix.Mount("", at, "", unix.MS_REMOUNT|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOATIME, ""),
		"leave the state disk as a shutdown does")
}

func (kernel) Unmount(at string) error {
	return fault.In(unix.Unmount(at, 0), "unmount %s", at)
}

// others lists the directories of users and of scripts, which may hold any kind of file.
var others = []string{"persist", "exec", "lost+found"}

// Sweep deletes from a mounted state disk what the agent never writes: links, pipes,
// sockets and devices. They were put there to be opened. What stood in their
// place is lost, and said; the node goes on without it.
func (f *Finder) Sweep(dir string) error {
	return filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case filepath.Dir(name) == dir && slices.Contains(others, e.Name()):
			if e.IsDir() {
				return fs.SkipDir
			}
		case e.IsDir() || e.Type().IsRegular():
			return nil
		}
		f.Say("%s on the state disk is a %s and not the agent's: it is deleted", name[len(dir)+1:], kind(e.Type()))
		return os.Remove(name)
	})
}

func kind(mode fs.FileMode) string {
	switch mode {
	case fs.ModeSymlink:
		return "link"
	case fs.ModeNamedPipe:
		return "pipe"
	case fs.ModeSocket:
		return "socket"
	case 0:
		return "file"
	}
	return "device"
}
