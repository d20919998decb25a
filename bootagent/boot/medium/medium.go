// SPDX-License-Identifier: Apache-2.0

// Package medium finds what a CD, a USB stick or a disk of 'caisson image' carries beside its
// loader: an OCI layout in the file system that firmware started from.
//
// It looks at the first sector of file systems and mounts one read-only. It trusts nothing
// that is there and decides nothing: what is read of the layout is verified as an answer of
// the registry is. bootagent/boot/initramfs imports it, and bootagent/node, which takes from it
// what a disk starts.
package medium

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
)

// ErrNone is returned where no medium carries a layout.
var ErrNone = errors.New("no medium carries a layer")

// place is where a file system of a medium begins.
type place struct {
	device string
	at     int64
}

// partitionAt is the first byte of the partition on a medium; of a CD the kernel reads no
// partition table.
const partitionAt = 1 << 20

// Mount mounts a medium that carries a layout, and returns the layout's directory. sys and
// dev are /sys and /dev.
func Mount(sys, dev, at string) (layout string, err error) {
	if err := os.MkdirAll(at, 0o700); err != nil {
		return "", err
	}
	var errs []error
	for _, p := range places(sys, dev) {
		if err := p.mount(at); err != nil {
			errs = append(errs, err)
			continue
		}
		layout := filepath.Join(at, paths.MediumLayout)
		if _, err := os.Stat(layout); err == nil {
			return layout, nil
		}
		errs = append(errs, Unmount(at)) // a loader alone
	}
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	return "", ErrNone
}

// Unmount takes a medium away as soon as nobody reads it.
func Unmount(at string) error { return unix.Unmount(at, unix.MNT_DETACH) }

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
	if err := unix.Mount(device, at, "vfat", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "fmask=0077,dmask=0077"); err != nil {
		return fmt.Errorf("mount %s: %w", p.device, err)
	}
	return nil
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
	return bytes.Equal(first[3:11], []byte("caisson ")) && bytes.Equal(first[71:82], fmt.Appendf(nil, "%-11s", paths.MediumLabel)) && bytes.Equal(first[82:87], []byte("FAT32"))
}
