// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/disk/e2fs"
	"github.com/caisson-os/caisson/bootagent/boot/disk/gpt"
	"github.com/caisson-os/caisson/internal/paths"
)

// much is how much more room there must be for growing to be worth it.
const much = 16 * gpt.Mebibyte

// mend writes the table of a disk again where a power cut may have torn it while it grew.
// No other disk is opened: that may wake it up, or take it from who is to have it alone.
func (f *Finder) mend() {
	for _, w := range disks(f.Sys, f.Dev) {
		if !f.mayBeTorn(w) {
			continue
		}
		if err := f.mendOne(w); err != nil {
			f.Say("the partition table of state disk %s is not whole: %v", w.device, err)
		}
	}
}

// mayBeTorn reports whether a disk is one that can have been cut while it grew, as far as the
// kernel shows that without a look at its content: of what is torn it reads no partition, or
// the one that was there.
func (f *Finder) mayBeTorn(w whole) bool {
	if w.removable != "" && f.Named == "" || w.readOnly || w.used || w.size < smallest {
		return false
	}
	files, _ := filepath.Glob(filepath.Join(w.dir, "*", "partition")) // the pattern is valid
	return !slices.ContainsFunc(files, func(file string) bool {
		return uevent(filepath.Join(filepath.Dir(file), "uevent"))["PARTNAME"] != paths.StateLabel
	})
}

func (f *Finder) mendOne(w whole) error {
	d, err := f.open(w, os.O_RDONLY)
	if err != nil {
		return nil // in use, or gone: no disk of ours
	}
	t, step, fleet, err := gpt.ReadNote(d, w.size, w.sector)
	if err == nil && step == gpt.Growing && fleet == f.Fleet {
		err = t.Alone(d)
	} else {
		step, err = "", nil // a disk that cannot be read, or of another fleet, is not mended
	}
	if err := errors.Join(err, d.Close()); err != nil || step == "" {
		return err
	}
	if err := f.change(w, func(d blockDevice) error { return errors.Join(t.Write(d), t.Serial(d)) }); err != nil {
		return err
	}
	return f.finish(w, t)
}

// growPartition gives a partition what its disk has more, where the disk is as caisson made
// it: no boot code, and no other partition; of a disk that the loader made, where the site
// asks for one. A disk that was copied gets identifiers of its own on the way.
func (f *Finder) growPartition(p partition) error {
	w := p.disk
	if w.device == "" || w.size < smallest {
		return nil
	}
	d, err := f.open(w, os.O_RDONLY)
	if err != nil {
		return nil // something else on it is in use: not ours alone
	}
	t, more, err := gpt.Wider(d, w.size, w.sector, much)
	if err := errors.Join(err, d.Close()); err != nil || !more || f.Ask == nil && !t.Boot {
		return err
	}
	if err := f.change(w, func(d blockDevice) error {
		return errors.Join(begin(t, d, gpt.Growing, f.Fleet), t.Serial(d))
	}); err != nil {
		return err
	}
	return f.finish(w, t)
}

// Grow has a mounted file system take what its device has more, where that is worth it, and
// gives it an identifier of its own where it has that of an image.
func (kernel) Grow(device, at string) error {
	return errors.Join(e2fs.Grow(device, at, much), e2fs.Renew(device, at, paths.ImageState))
}

// looks is how long udev may look at a disk that was written to: it opens disk and partitions
// for each who closes it.
const looks = 30 * time.Second

// Reread has the kernel read a partition table, once nobody looks at the disk any more. As
// long as the disk is locked, udev does not begin to, see systemd.io/BLOCK_DEVICE_LOCKING.
func (kernel) Reread(device string) error {
	d, err := os.OpenFile(device, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	for end := time.Now().Add(looks); ; time.Sleep(100 * time.Millisecond) {
		if err = unix.Flock(int(d.Fd()), unix.LOCK_EX|unix.LOCK_NB); err == nil {
			err = unix.IoctlSetInt(int(d.Fd()), unix.BLKRRPART, 0)
		}
		if !errors.Is(err, unix.EBUSY) && !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("have the kernel read the partition table of %s: %w", device, err)
	}
	return errors.Join(err, d.Close())
}
