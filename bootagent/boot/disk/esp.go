// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/disk/gpt"
)

// ErrNoRoom is returned for a disk whose state partition leaves none for that of a loader.
// Nothing is ever shrunk.
var ErrNoRoom = errors.New("cannot: no room: less than a gigabyte before the state partition, and nothing is shrunk")

// ESP is the disk of a state partition that is in use, and the partition on it that firmware
// starts from.
type ESP struct {
	Device string // of the partition, "" where there is none yet

	disk whole
	made gpt.Layout

	opener func(w whole) (blockDevice, error)      // nil opens the disk
	tell   func(d blockDevice, t gpt.Layout) error // nil tells the kernel
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
	e.made, _, own, err = gpt.Own(d, e.disk.size, e.disk.sector)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", e.disk.device, err)
	case !own:
		return nil, fmt.Errorf("cannot: the partition table of %s is not as caisson makes it", e.disk.device)
	case e.disk.sector != firmwareSector:
		return nil, fmt.Errorf("cannot: the sectors of %s have %d bytes, and those of a loader's file system %d", e.disk.device, e.disk.sector, firmwareSector)
	case e.made.Boot:
		return e, e.find()
	case e.made.Start < gpt.Start:
		return nil, ErrNoRoom
	}
	return e, nil
}

// firmwareSector is that of the file systems that loaders come in.
const firmwareSector = 512

// find names the partition's device. One that the kernel does not know yet it is told of.
func (e *ESP) find() error {
	files, _ := filepath.Glob(filepath.Join(e.disk.dir, "*", "partition")) // the pattern is valid
	for _, file := range files {
		if read(file) == fmt.Sprint(gpt.BootNumber) {
			e.Device = filepath.Join(filepath.Dir(e.disk.device), uevent(filepath.Join(filepath.Dir(file), "uevent"))["DEVNAME"])
			return nil
		}
	}
	return fmt.Errorf("%s: the kernel does not know its partition %d: restart the machine", e.disk.device, gpt.BootNumber)
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
		func() error { return fill(io.NewOffsetWriter(d, gpt.Mebibyte)) },
		func() error { return t.Serial(d) },
		d.Sync,
		func() error { return begin(t, d, gpt.Growing, fleet) },
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
func announce(disk blockDevice, t gpt.Layout) error {
	d, ok := disk.(*os.File)
	if !ok {
		return errors.New("not a block device")
	}
	p := unix.BlkpgPartition{Start: gpt.Mebibyte, Length: t.Start - gpt.Mebibyte, Pno: gpt.BootNumber}
	arg := unix.BlkpgIoctlArg{Op: unix.BLKPG_ADD_PARTITION, Datalen: int32(unsafe.Sizeof(p)), Data: (*byte)(unsafe.Pointer(&p))}
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, d.Fd(), unix.BLKPG, uintptr(unsafe.Pointer(&arg))); errno != 0 && errno != unix.EBUSY {
		return fmt.Errorf("tell the kernel of the partition: %w", errno)
	}
	return nil
}
