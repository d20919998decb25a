// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
)

// Target is a disk that an operator has named to install on.
type Target struct {
	Device string // of the disk

	disk   whole
	finder *Finder
}

// Target returns the disk with a path, serial number or WWN, whatever is on it.
func (f *Finder) Target(name string) (*Target, error) {
	f.Mounter = cmp.Or[Mounter](f.Mounter, kernel{})
	path, err := filepath.EvalSymlinks(name) // as those below /dev/disk
	if err != nil {
		path = name
	}
	var found []*Target
	var all []string
	for _, w := range disks(f.Sys, f.Dev) {
		all = append(all, w.device)
		if w.device == path || w.isOneOf([]string{name}) {
			found = append(found, &Target{Device: w.device, disk: w, finder: f})
		}
	}
	switch {
	case len(found) > 1:
		return nil, fmt.Errorf("%s and %s are both called %q: name one by its path", found[0].Device, found[1].Device, name)
	case found == nil && all == nil:
		return nil, fmt.Errorf("there is no disk %q: this machine has none", name)
	case found == nil:
		return nil, fmt.Errorf("there is no disk %q: this machine has %s", name, strings.Join(all, ", "))
	}
	return found[0], nil
}

// Holds reports whether a partition, given by its device, is on the disk.
func (t *Target) Holds(partition string) bool {
	_, err := os.Stat(filepath.Join(t.disk.dir, filepath.Base(partition)))
	return partition != "" && err == nil
}

// Describe says what is on the disk, a line for it and one a partition.
func (t *Target) Describe() (lines []string) {
	about := []string{t.Device + " " + plain.Bytes(t.disk.size)}
	if model := read(filepath.Join(t.disk.dir, "device/model")); model != "" { // a virtual disk has none
		about = append(about, "model "+model)
	}
	about = append(about, slices.Compact(slices.Sorted(slices.Values(t.disk.names)))...)
	lines = []string{strings.Join(about, ", ") + ": " + what(t.Device, t.disk.size)}
	files, _ := filepath.Glob(filepath.Join(t.disk.dir, "*", "partition")) // the pattern is valid
	for _, file := range files {
		dir := filepath.Dir(file)
		e := uevent(filepath.Join(dir, "uevent"))
		device := filepath.Join(filepath.Dir(t.Device), e["DEVNAME"])
		size := wholeAt(t.finder.Sys, dir, device).size
		lines = append(lines, strings.TrimRight(fmt.Sprintf("  %s %s %s", device, plain.Bytes(size), e["PARTNAME"]), " ")+": "+what(device, size))
	}
	return lines
}

func what(device string, size int64) string {
	d, err := os.Open(device)
	if err != nil {
		return err.Error()
	}
	defer d.Close() // only read
	return Contents(d, size)
}

// ErrNotEmpty is returned where a disk holds what no operator has said may go.
var ErrNotEmpty = errors.New("the disk is not empty")

// notEmpty is [ErrNotEmpty] with what is on the disk, which says that by itself.
type notEmpty struct{ error }

func (e notEmpty) Is(target error) bool { return target == ErrNotEmpty }
func (e notEmpty) Unwrap() error        { return e.error }

// Check returns nil for a disk that may be installed on: one that is empty by the rule of
// layer.stateDisk.create, or whose making was cut short; with wipe any that nobody uses
// and that can be read.
func (t *Target) Check(wipe bool) (err error) {
	f, w := t.finder, t.disk
	switch {
	case w.size < f.start()-Mebibyte+smallest:
		return fmt.Errorf("%s has %d bytes, and at least %d are needed", w.device, w.size, f.start()-Mebibyte+smallest)
	case w.sector != firmwareSector:
		return fmt.Errorf("the sectors of %s have %d bytes, and those of a loader's file system %d", w.device, w.sector, firmwareSector)
	case f.Programs == nil:
		return errors.New("this node has no mke2fs: add e2fsprogs to conf.apt.packages")
	}
	d, err := f.unused(w)
	if err != nil {
		return fmt.Errorf("%s: %w", w.device, err)
	}
	if err := d.Close(); err != nil {
		return err
	}
	_, err = f.vacant(w)
	switch {
	case err == nil, wipe && !errors.Is(err, ErrUnreadable):
		return nil
	case errors.Is(err, ErrUnreadable):
		return fmt.Errorf("%s: %w", w.device, err)
	}
	return notEmpty{fmt.Errorf("%s: %w", w.device, err)}
}

// Install makes a disk that was checked one that boots: a table, the partition that firmware
// starts from, with the file system that fill writes, and a state partition. What a power cut
// leaves is a disk that says of itself that it is being made.
func (t *Target) Install(fill func(io.WriterAt) error) error {
	f, w := t.finder, t.disk
	made := NewLayout(w.size, w.sector, f.start())
	made.Boot = true
	if err := f.change(w, func(d blockDevice) error {
		if _, err := d.WriteAt(made.First(made.Note(StepMaking, f.Fleet)), 0); err != nil {
			return err
		}
		if err := d.Sync(); err != nil {
			return err
		}
		if err := erase(d, w, made); err != nil {
			return err
		}
		if err := begin(made, d, StepMaking, f.Fleet); err != nil {
			return err
		}
		return errors.Join(fill(io.NewOffsetWriter(d, Mebibyte)), made.Serial(d))
	}); err != nil {
		return fmt.Errorf("install on %s: %w", w.device, err)
	}
	return fault.In(f.fill(w, made), "install on %s", w.device)
}

// erase takes away what others know a disk by: its ends, and those of the partitions to be.
func erase(d io.WriterAt, w whole, made Layout) error {
	const edge = 4 * Mebibyte
	zeros := make([]byte, Mebibyte)
	for _, span := range [][2]int64{{w.sector, edge}, {made.Start - edge, made.Start + edge}, {w.size - 2*edge, w.size}} {
		for at := max(span[0], w.sector); at < span[1]; at += int64(len(zeros)) {
			if _, err := d.WriteAt(zeros[:min(int64(len(zeros)), span[1]-at)], at); err != nil {
				return fmt.Errorf("erase what was on it: %w", err)
			}
		}
	}
	return nil
}

// ErrNoRoom is returned for a disk whose state partition leaves none for that of a loader.
// Nothing is ever shrunk.
var ErrNoRoom = errors.New("cannot: no room: less than a gigabyte before the state partition, and nothing is shrunk")

// ESP is the disk of a state partition that is in use, and the partition on it that firmware
// starts from.
type ESP struct {
	Device string // of the partition, "" where there is none yet

	disk whole
	made Layout

	opener func(w whole) (blockDevice, error)  // nil opens the disk
	tell   func(d blockDevice, t Layout) error // nil tells the kernel
}

// ESPBeside looks for the partition that firmware starts from beside a state partition, given
// by its device. An error says why there is none, and cannot be one.
func ESPBeside(sys, dev, state string) (*ESP, error) {
	dir, err := filepath.EvalSymlinks(filepath.Join(sys, "class/block", filepath.Base(state)))
	if err != nil {
		return nil, err
	}
	above := filepath.Dir(dir)
	e := &ESP{disk: wholeAt(sys, above, filepath.Join(dev, uevent(filepath.Join(above, "uevent"))["DEVNAME"]))}
	d, err := os.Open(e.disk.device)
	if err != nil {
		return nil, err
	}
	defer d.Close() // only read
	var own bool
	e.made, _, own, err = OwnTable(d, e.disk.size, e.disk.sector)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", e.disk.device, err)
	case !own:
		return nil, fmt.Errorf("cannot: the partition table of %s is not as caisson makes it", e.disk.device)
	case e.disk.sector != firmwareSector:
		return nil, fmt.Errorf("cannot: the sectors of %s have %d bytes, and those of a loader's file system %d",
			e.disk.device, e.disk.sector, firmwareSector)
	case e.made.Boot:
		return e, e.find()
	case e.made.Start < LayoutStart:
		return nil, ErrNoRoom
	}
	return e, nil
}

// firmwareSector is that of the file systems that loaders come in.
const firmwareSector = 512

// find names the partition's device. One that is new to the kernel is announced to it.
func (e *ESP) find() error {
	files, _ := filepath.Glob(filepath.Join(e.disk.dir, "*", "partition")) // the pattern is valid
	for _, file := range files {
		if read(file) == fmt.Sprint(BootNumber) {
			e.Device = filepath.Join(filepath.Dir(e.disk.device), uevent(filepath.Join(filepath.Dir(file), "uevent"))["DEVNAME"])
			return nil
		}
	}
	return fmt.Errorf("%s: the kernel does not know its partition %d: restart the machine", e.disk.device, BootNumber)
}

// Make makes the partition, with the file system that fill writes at its beginning. A cut
// leaves the disk without it, or the next boot's loader a table to finish.
func (e *ESP) Make(fleet string, fill func(io.WriterAt) error) (err error) {
	if e.opener == nil {
		e.opener, e.tell = together, announce
	}
	d, err := e.opener(e.disk)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	t := e.made
	t.Boot = true
	for _, step := range []func() error{
		func() error { return fill(io.NewOffsetWriter(d, Mebibyte)) },
		func() error { return t.Serial(d) },
		d.Sync,
		func() error { return begin(t, d, StepGrowing, fleet) },
		d.Sync,
		func() error {
			_, err := d.WriteAt(t.First(""), 0)
			return err
		},
		d.Sync,
		func() error { return e.tell(d, t) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("make the partition of a loader on %s: %w", e.disk.device, err)
		}
	}
	e.made = t
	return e.find()
}

// together opens a disk of which the state partition is in use.
func together(w whole) (blockDevice, error) {
	return os.OpenFile(w.device, os.O_RDWR|unix.O_CLOEXEC, 0)
}

// announce tells the kernel of the partition: it does not read the table of a disk that is in use.
func announce(disk blockDevice, t Layout) error {
	d, ok := disk.(*os.File)
	if !ok {
		return errors.New("not a block device")
	}
	p := unix.BlkpgPartition{Start: Mebibyte, Length: t.Start - Mebibyte, Pno: BootNumber}
	arg := unix.BlkpgIoctlArg{Op: unix.BLKPG_ADD_PARTITION, Datalen: int32(unsafe.Sizeof(p)), Data: (*byte)(unsafe.Pointer(&p))}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&arg))); errno != 0 && errno != unix.EBUSY {
		return fmt.Errorf("tell the kernel of the partition: %w", errno)
	}
	return nil
}
