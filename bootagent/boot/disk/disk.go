// SPDX-License-Identifier: Apache-2.0

// Package disk finds the partition that is this node's memory and mounts it.
//
// A partition is a candidate by its GPT name, [paths.StateLabel], or by the
// partition UUID that the site names. Whether it is this node's is decided by a
// list of checks, see rules.go: it is fixed to the machine, readable, and its owner
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
	"os"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/check"
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
	if f.Mounter == nil {
		f.Mounter = kernel{}
	}
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
	if err := f.growPartition(c.partition); err != nil {
		f.Say("state disk %s does not grow: %v", c.device, err)
	}
	if err := f.preen(c.device, false); err != nil {
		return nil, err
	}
	readOnly, err = f.mount(c.device, at)
	if err != nil || readOnly != nil {
		return readOnly, err
	}
	if err := f.Mounter.Grow(c.device, at); err != nil {
		f.Say("state disk %s does not grow: %v", c.device, err)
	}
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
