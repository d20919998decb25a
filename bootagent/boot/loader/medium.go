// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
)

// ErrNoMedium is returned where no medium carries a layout.
var ErrNoMedium = errors.New("no medium carries a layer")

// place is where a file system of a medium begins.
type place struct {
	device string
	at     int64
}

// partitionAt is the first byte of the partition on a medium; of a CD the kernel reads no
// partition table.
const partitionAt = 1 << 20

// Media are the mounted media that carry a layout.
type Media struct {
	Layouts []string // directories, in the order of the kernel's names
	Passed  []error  // why others could not be looked at

	mounted []string
}

// MountMedia mounts each medium that carries a layout, in directories below at. sys and dev are
// /sys and /dev. All are there at once, since which of them has the newest generation is
// known only when all were asked: a machine's own disk may carry what it was installed with.
func MountMedia(sys, dev, at string) (*Media, error) {
	return mountEach(places(sys, dev), at, place.mount)
}

func mountEach(list []place, at string, mount func(place, string) error) (*Media, error) {
	m := &Media{}
	var read []string
	for n, p := range list {
		if p.at != 0 && slices.ContainsFunc(read, p.holds) {
			continue // it was one of the partitions
		}
		at := filepath.Join(at, strconv.Itoa(n))
		err := os.MkdirAll(at, 0o700)
		if err == nil {
			err = mount(p, at)
		}
		if err != nil {
			m.Passed = append(m.Passed, err)
			continue
		}
		m.mounted, read = append(m.mounted, at), append(read, p.device)
		layout := filepath.Join(at, paths.MediumLayout)
		if _, err := os.Stat(layout); err == nil { // else it is a loader alone
			m.Layouts = append(m.Layouts, layout)
		}
	}
	if len(m.Layouts) > 0 {
		return m, nil
	}
	if err := errors.Join(append(m.Passed, m.Close())...); err != nil {
		return nil, err
	}
	return nil, ErrNoMedium
}

// partition matches the suffix that the kernel adds to a disk's name.
var partition = regexp.MustCompile(`^p?[0-9]+$`)

// holds reports whether a device is a partition of the place's.
func (p place) holds(device string) bool {
	rest, ok := strings.CutPrefix(device, p.device)
	return ok && partition.MatchString(rest)
}

// Close takes the media away, each as soon as nobody reads it.
func (m *Media) Close() error {
	var errs []error
	for _, at := range m.mounted {
		errs = append(errs, fault.In(unix.Unmount(at, unix.MNT_DETACH), "unmount the medium"))
	}
	return errors.Join(errs...)
}

func (p place) mount(at string) error {
	device := p.device
	if p.at != 0 {
		f, err := os.Open(p.device)
		if err != nil {
			return err
		}
		defer f.Close() // only read
		loop, err := layers.Attach(f, p.at)
		if err != nil {
			return err
		}
		defer loop.Close() // the mount holds it
		device = loop.Name()
	}
	return fault.In(unix.Mount(device, at, "vfat", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "fmask=0077,dmask=0077"),
		"mount %s", p.device)
}

// places returns the file systems of media, sorted by the kernel's names. Partitions come
// before what lies within a disk that is not divided.
func places(sys, dev string) []place {
	files, _ := filepath.Glob(filepath.Join(sys, "class/block/*/uevent")) // the pattern is valid
	var whole, within []place
	for _, file := range files {
		name := deviceName(file)
		if name == "" || strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") {
			continue
		}
		device := filepath.Join(dev, name)
		switch {
		case isMedium(device, 0):
			whole = append(whole, place{device, 0})
		case isMedium(device, partitionAt):
			within = append(within, place{device, partitionAt})
		}
	}
	return slices.Concat(whole, within)
}

func deviceName(uevent string) string {
	f, err := os.Open(uevent)
	if err != nil {
		return "" // it has gone
	}
	defer f.Close() // only read
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, ok := strings.CutPrefix(s.Text(), "DEVNAME="); ok {
			return name
		}
	}
	return ""
}

// isMedium reports whether a file system of 'caisson image' begins there.
func isMedium(device string, at int64) bool {
	f, err := os.Open(device)
	if err != nil {
		return false // in use, or without a disc
	}
	defer f.Close() // only read
	first := make([]byte, 512)
	if _, err := f.ReadAt(first, at); err != nil {
		return false
	}
	return bytes.Equal(first[3:11], []byte("caisson ")) &&
		bytes.Equal(first[71:82], fmt.Appendf(nil, "%-11s", paths.MediumLabel)) && bytes.Equal(first[82:87], []byte("FAT32"))
}
