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
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
)

// Programs are those of e2fsprogs, where the loader has them.
type Programs interface {
	// Make makes an ext4 file system in the bytes of a device from offset on.
	Make(device, label string, offset, bytes int64) error
	// Preen repairs what can be repaired without a question, and says what it did. One
	// that says it is well is looked at where that is forced.
	Preen(device string, force bool) (repaired string, err error)
}

// blockDevice is an open disk.
type blockDevice interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Close() error
}

// Make makes a state disk where the site asks for one and none is there, and returns the
// disk, "" where it made none. It takes a disk that is empty, see [CheckBlank], or one whose making
// was cut short, and else says why it takes none; a note that is not empty says so of a machine whose
// disks are all removable, where the site names none: that one is diskless, and nothing is wrong with it.
func (f *Finder) Make() (made, note string) {
	if f.Ask == nil {
		return "", ""
	}
	found := disks(f.Sys, f.Dev)
	var begun, fit []whole
	var reasons []string
	for _, w := range found {
		half, err := f.fits(w)
		switch {
		case err != nil:
			reasons = append(reasons, fmt.Sprintf("%s: %v", w.device, err))
		case half:
			begun = append(begun, w)
		default:
			fit = append(fit, w)
		}
	}
	if begun != nil {
		fit = begun
	} else if others := partitions(f.Sys, f.Dev, f.Named); len(others) > 0 {
		f.Say("no state disk is made: %s is one, and is not used", others[0].device)
		return "", ""
	}
	if len(fit) == 1 {
		if err := f.make(fit[0]); err != nil {
			f.Say("no state disk is made, the next boot tries again: %s: %v", fit[0].device, err)
			return "", ""
		}
		return fit[0].device, ""
	}
	for _, w := range fit {
		reasons = append(reasons, w.device+": it is empty, and not the only one; name one in layer.stateDisk.disks")
	}
	if len(reasons) > 0 {
		note = "no state disk is made: " + strings.Join(reasons, "; ")
	}
	if note == "" || len(f.Ask.Disks) == 0 && !slices.ContainsFunc(found, func(w whole) bool { return w.removable == "" }) {
		return "", note
	}
	f.Say("%s", note)
	return "", ""
}

// fits returns nil for a disk that the site asks for and that is empty. half says that
// it is one whose making was cut short: what is on it is of the loader before.
func (f *Finder) fits(w whole) (half bool, err error) {
	named := w.isOneOf(f.Ask.Disks)
	switch {
	case len(f.Ask.Disks) > 0 && !named:
		return false, errors.New("layer.stateDisk.disks has other disks")
	case w.removable != "" && !named:
		return false, fmt.Errorf("it is %s; if it is meant, name it in layer.stateDisk.disks", w.removable)
	case w.size < max(f.Ask.AtLeast, f.start()-Mebibyte+smallest):
		return false, fmt.Errorf("it has %d bytes, and at least %d are needed", w.size, max(f.Ask.AtLeast, f.start()-Mebibyte+smallest))
	}
	return f.vacant(w)
}

// vacant is the one rule of which disk may be made a state disk without a word: one that is
// empty, or half says, one whose making was cut short.
func (f *Finder) vacant(w whole) (half bool, err error) {
	d, err := f.unused(w)
	if err != nil {
		return false, err
	}
	defer d.Close() // only read
	t, step, fleet, err := ReadNote(d, w.size, w.sector)
	switch {
	case err != nil:
		return false, err
	case step == StepMaking && fleet == f.Fleet:
		return true, t.Alone(d)
	}
	return false, CheckBlank(d, w.size)
}

// unused opens a disk that nobody uses, to read it.
func (f *Finder) unused(w whole) (blockDevice, error) {
	switch {
	case w.readOnly:
		return nil, errors.New("the disk is read-only")
	case w.used:
		return nil, errors.New("other devices are made of it")
	}
	d, err := f.open(w, os.O_RDONLY)
	return d, fault.In(err, "it is in use")
}

// smallest is less than any state disk has, without the room for a loader.
const smallest = 64 * Mebibyte

// start is where the partition of a new disk starts.
func (f *Finder) start() int64 { return cmp.Or(f.begins, LayoutStart) }

// make writes a note of what is being done, a table and a file system, and takes the note
// away. What a power cut leaves has the note, and is made again.
func (f *Finder) make(w whole) error {
	if f.Programs == nil {
		return errors.New("this loader has no mke2fs: the layer whose loader it is was built without layer.stateDisk.create")
	}
	t := NewLayout(w.size, w.sector, f.start())
	if err := f.change(w, func(d blockDevice) error { return begin(t, d, StepMaking, f.Fleet) }); err != nil {
		return err
	}
	return f.fill(w, t)
}

// fill makes the file system, and takes the note away.
func (f *Finder) fill(w whole, t Layout) error {
	if err := f.Programs.Make(w.device, paths.StateLabel, t.Start, t.end()-t.Start); err != nil {
		return err
	}
	return f.finish(w, t)
}

// begin writes the note, and then the table.
func begin(t Layout, d blockDevice, step, fleet string) error {
	if _, err := d.WriteAt(t.First(t.Note(step, fleet)), 0); err != nil {
		return fmt.Errorf("note what is done: %w", err)
	}
	if err := d.Sync(); err != nil {
		return err
	}
	return t.Write(d)
}

// finish takes the note away and has the kernel read the table.
func (f *Finder) finish(w whole, t Layout) error {
	if err := f.change(w, func(d blockDevice) error {
		_, err := d.WriteAt(t.First(""), 0)
		return err
	}); err != nil {
		return err
	}
	return f.Mounter.Reread(w.device)
}

// change opens a disk that no other process uses, and synchronises what do did to it.
func (f *Finder) change(w whole, do func(blockDevice) error) error {
	d, err := f.open(w, os.O_RDWR)
	if err != nil {
		return err
	}
	err = do(d)
	if err == nil {
		err = d.Sync()
	}
	return errors.Join(err, d.Close())
}

func (f *Finder) open(w whole, flags int) (blockDevice, error) {
	if f.opener != nil {
		return f.opener(w, flags)
	}
	return w.alone(flags)
}

// much is how much more room there must be for growing to be worth it.
const much = 16 * Mebibyte

// mend writes the table of a disk again where a power cut may have torn it while it grew.
// No other disk is opened: that may wake it up, or take it from who is to have it alone.
func (f *Finder) mend() {
	for _, w := range disks(f.Sys, f.Dev) {
		if !f.mayBeTorn(w) {
			continue
		}
		fault.Say(f.Say, fault.In(f.mendOne(w), "the partition table of state disk %s is not whole", w.device))
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
	t, step, fleet, err := ReadNote(d, w.size, w.sector)
	if err == nil && step == StepGrowing && fleet == f.Fleet {
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
	t, more, err := WiderTable(d, w.size, w.sector, much)
	if err := errors.Join(err, d.Close()); err != nil || !more || f.Ask == nil && !t.Boot {
		return err
	}
	if err := f.change(w, func(d blockDevice) error {
		return errors.Join(begin(t, d, StepGrowing, f.Fleet), t.Serial(d))
	}); err != nil {
		return err
	}
	return f.finish(w, t)
}

// Grow has a mounted file system take what its device has more, where that is worth it, and
// gives it an identifier of its own where it has that of an image.
func (kernel) Grow(device, at string) error {
	return errors.Join(GrowExt4(device, at, much), RenewExt4(device, at, paths.ImageState))
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
	err = fault.In(err, "have the kernel read the partition table of %s", device)
	return errors.Join(err, d.Close())
}
