// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// whole is a disk, as the kernel shows it.
type whole struct {
	device    string // below Dev
	dir       string // below Sys
	size      int64  // bytes
	sector    int64
	names     []string // serial numbers and WWNs, see simple
	readOnly  bool
	used      bool   // others stand on it: device mapper, RAID
	removable string // why it is not fixed to this machine, "" when it is
}

// disks returns the disks of the machine, sorted by the kernel's names: what has a device
// behind it and is not a drive for discs or floppies.
func disks(sys, dev string) []whole {
	files, _ := filepath.Glob(filepath.Join(sys, "class/block/*/device")) // the pattern is valid
	var found []whole
	for _, file := range files {
		dir, err := filepath.EvalSymlinks(filepath.Dir(file))
		name := uevent(filepath.Join(filepath.Dir(file), "uevent"))["DEVNAME"]
		if err != nil || name == "" || strings.HasPrefix(name, "sr") || strings.HasPrefix(name, "fd") {
			continue // it has gone, or is not a disk
		}
		found = append(found, wholeAt(sys, dir, filepath.Join(dev, name)))
	}
	return found
}

func wholeAt(sys, dir, device string) whole {
	sectors, _ := strconv.ParseInt(read(filepath.Join(dir, "size")), 10, 64) // in units of 512, whatever a sector has; 0 is too small
	sector, err := strconv.ParseInt(read(filepath.Join(dir, "queue/logical_block_size")), 10, 64)
	if err != nil {
		sector = 512
	}
	holders, _ := os.ReadDir(filepath.Join(dir, "holders")) // what cannot be read is found by opening it alone
	w := whole{device: device, dir: dir, size: sectors * 512, sector: sector, readOnly: read(filepath.Join(dir, "ro")) == "1",
		used: len(holders) > 0, removable: removable(sys, dir)}
	for _, file := range []string{"serial", "wwid", "device/serial", "device/wwid"} {
		if name := simple(read(filepath.Join(dir, file))); name != "" {
			w.names = append(w.names, name)
		}
	}
	if page := read(filepath.Join(dir, "device/vpd_pg80")); len(page) > 4 { // SCSI: four bytes, then the serial number
		w.names = append(w.names, simple(page[4:]))
	}
	return w
}

// simple spells a serial number or WWN so that what lsblk shows is what sysfs has.
func simple(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	for _, prefix := range []string{"naa.", "eui.", "0x"} {
		name = strings.TrimPrefix(name, prefix)
	}
	return name
}

// isOneOf reports whether a disk has one of the names.
func (w whole) isOneOf(names []string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(w.names, simple(name)) })
}

// alone opens a disk that nobody else uses: no mount, no RAID, no device mapper.
func (w whole) alone(flags int) (*os.File, error) {
	return os.OpenFile(w.device, flags|unix.O_EXCL|unix.O_CLOEXEC, 0)
}
