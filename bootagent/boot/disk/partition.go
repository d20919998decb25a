// SPDX-License-Identifier: Apache-2.0

package disk

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// partition describes a partition as the kernel reports it.
type partition struct {
	device    string // below Dev
	uuid      string // of the partition, lower case; "" when unknown
	removable string // why it is not fixed to this machine, "" when it is

	disk       whole  // that it is on, zero when unknown
	unfinished string // what was being done to that when the machine stopped
}

// partitions returns those with our name, and the one with the UUID, sorted by the
// kernel's names. Devices that vanish meanwhile are left out.
func partitions(sys, dev, uuid string) []partition {
	files, _ := filepath.Glob(filepath.Join(sys, "class/block/*/uevent")) // the pattern is valid
	var found []partition
	for _, file := range files {
		e := uevent(file)
		if e["DEVNAME"] == "" || e["PARTN"] == "" || e["PARTNAME"] != paths.StateLabel && uuid == "" {
			continue
		}
		real, err := filepath.EvalSymlinks(filepath.Dir(file))
		if err != nil {
			continue // it has gone
		}
		p := partition{device: filepath.Join(dev, e["DEVNAME"]), uuid: strings.ToLower(e["PARTUUID"])}
		if p.uuid == "" { // kernels before 6.13
			p.uuid = tableUUID(filepath.Dir(real), dev, e["PARTN"])
		}
		if e["PARTNAME"] != paths.StateLabel && p.uuid != uuid {
			continue
		}
		p.removable = removable(sys, real)
		if name := uevent(filepath.Join(filepath.Dir(real), "uevent"))["DEVNAME"]; name != "" {
			p.disk = wholeAt(sys, filepath.Dir(real), filepath.Join(dev, name))
			p.unfinished = unfinished(p.disk)
		}
		found = append(found, p)
	}
	return found
}

// unfinished returns the step that the first sector of a disk names as begun, "" where that
// names none or cannot be read.
func unfinished(w whole) string {
	d, err := os.Open(w.device)
	if err != nil {
		return ""
	}
	defer d.Close() // only read
	_, step, _, err := ReadNote(d, w.size, w.sector)
	if err != nil {
		return ""
	}
	return step
}

func uevent(file string) map[string]string {
	fields := map[string]string{}
	f, err := os.Open(file)
	if err != nil {
		return fields // the device has gone
	}
	defer f.Close() // only read
	for s := bufio.NewScanner(f); s.Scan(); {
		if name, value, ok := strings.Cut(s.Text(), "="); ok {
			fields[name] = value
		}
	}
	return fields
}

// tableUUID reads a partition's UUID from the table of the disk in a sysfs directory,
// "" where it cannot.
func tableUUID(disk, dev, number string) string {
	n, err := strconv.Atoi(number)
	if err != nil {
		return ""
	}
	sector, err := strconv.ParseInt(read(filepath.Join(disk, "queue/logical_block_size")), 10, 64)
	if err != nil {
		sector = 512
	}
	f, err := os.Open(filepath.Join(dev, uevent(filepath.Join(disk, "uevent"))["DEVNAME"]))
	if err != nil {
		return ""
	}
	defer f.Close() // only read
	uuid, err := partitionUUID(f, sector, n)
	if err != nil {
		return ""
	}
	return uuid
}

// usbBus is a host controller's root hub in a device's path.
var usbBus = regexp.MustCompile(`^usb[0-9]+$`)

// removable says why a device, given by its directory below sys, is one that a
// passer-by could bring: "" for disks that are fixed to the machine. The kernel notes
// at each device on the way what firmware and drivers know of it, see
// Documentation/ABI/testing/sysfs-devices-removable and sysfs-block-device.
func removable(sys, dir string) string {
	for ; strings.HasPrefix(dir, sys) && dir != sys; dir = filepath.Dir(dir) {
		if usbBus.MatchString(filepath.Base(dir)) {
			return "a USB device"
		}
		if flag := read(filepath.Join(dir, "removable")); flag == "1" || flag == "removable" {
			return "a removable medium"
		}
		if read(filepath.Join(dir, "type")) == "SD" { // an eMMC chip says MMC
			return "an SD card"
		}
	}
	return ""
}

func read(name string) string {
	data, _ := os.ReadFile(name) // "" where there is none
	return strings.TrimSpace(string(data))
}

// Of a GUID partition table, see the UEFI specification, chapter 5.
const (
	maxEntries   = 1024
	maxEntrySize = 4096
)

// partitionUUID reads the unique UUID of a partition, counted from 1, from the
// table of a disk with sectors of the given size.
func partitionUUID(disk io.ReaderAt, sector int64, number int) (string, error) {
	header := make([]byte, 92)
	if _, err := disk.ReadAt(header, sector); err != nil {
		return "", err
	}
	if string(header[:8]) != "EFI PART" {
		return "", errors.New("no GUID partition table")
	}
	first := int64(binary.LittleEndian.Uint64(header[72:]))
	count, size := int64(binary.LittleEndian.Uint32(header[80:])), int64(binary.LittleEndian.Uint32(header[84:]))
	if first < 2 || first > 1<<32 || count > maxEntries || size < 128 || size > maxEntrySize || number < 1 || int64(number) > count {
		return "", fmt.Errorf("the partition table has no entry %d", number)
	}
	var id [16]byte
	if _, err := disk.ReadAt(id[:], first*sector+int64(number-1)*size+16); err != nil {
		return "", err
	}
	le := binary.LittleEndian
	return fmt.Sprintf("%08x-%04x-%04x-%x-%x", le.Uint32(id[0:]), le.Uint16(id[4:]), le.Uint16(id[6:]), id[8:10], id[10:]), nil
}

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

// alone opens a disk that no other process uses: no mount, no RAID, no device mapper.
func (w whole) alone(flags int) (*os.File, error) {
	return os.OpenFile(w.device, flags|unix.O_EXCL|unix.O_CLOEXEC, 0)
}

// candidate is a partition on its way through the checks.
type candidate struct {
	partition
	finder *Finder
	owner  *owner // nil: a new disk
	floor  spec.Floor
	aside  bool
}

func (c *candidate) named() bool { return c.finder.Named != "" && c.uuid == c.finder.Named }

func (c *candidate) known() bool { return c.owner != nil || c.named() }

// rules say which partition is this node's memory. The site's own word about a
// partition stands in for what the medium and the machine say, never for the fleet:
// the floor of another fleet would have this one's overlays refused for ever.
var rules = check.List[*candidate]{
	{Name: "named", OK: func(c *candidate) error {
		if want := c.finder.Named; want != "" && !c.named() {
			return fmt.Errorf("the site names partition %s, this is %s", want, orUnknown(c.uuid))
		}
		return nil
	}},
	{Name: "medium", OK: func(c *candidate) error {
		if c.removable != "" && !c.named() {
			return fmt.Errorf("it is on %s; if it is meant, name its partition %s with 'caisson netboot --state-disk'",
				c.removable, orUnknown(c.uuid))
		}
		return nil
	}},
	{Name: "whole", OK: func(c *candidate) error {
		if c.unfinished == StepMaking {
			return fmt.Errorf("the machine stopped while it was made; with layer.stateDisk.create it is made again, else make a new partition table")
		}
		return nil
	}},
	{Name: "content", OK: func(c *candidate) error {
		return c.finder.peek(c, func(dir string) (err error) {
			c.floor = readFloor(dir)
			if c.owner, err = readOwner(dir); errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		})
	}},
	{Name: "fleet", OK: func(c *candidate) error {
		if c.owner != nil && c.owner.Fleet != c.finder.Fleet {
			return fmt.Errorf("it belongs to fleet %.80q, this is %q; to use it here, make a new file system on it", c.owner.Fleet, c.finder.Fleet)
		}
		return nil
	}},
	{Name: "machine", OK: func(c *candidate) error {
		mine := c.finder.Machine
		if c.owner != nil && c.owner.Machine != "" && mine != "" && c.owner.Machine != mine && !c.named() {
			return fmt.Errorf("it belongs to the machine with UUID %.80q, this is %s; to move it here, delete %s from it",
				c.owner.Machine, mine, ownerFile)
		}
		return nil
	}},
}

// unusable adds the remedy for a file system that does not mount.
func unusable(err error) error {
	return fmt.Errorf("%w; nothing is remembered until it is repaired (fsck) or has a new file system (mkfs.ext4)", err)
}

func orUnknown(uuid string) string {
	if uuid == "" {
		return "of unknown UUID"
	}
	return uuid
}

// ownerFile is the owner record, in the top directory of the state disk.
const ownerFile = "owner.json"

// owner is whose memory a disk is.
type owner struct {
	Fleet   string `json:"fleet"`
	Machine string `json:"machine,omitempty"` // SMBIOS UUID
}

// Claim writes the owner record of a disk that is mounted at dir and has none yet,
// or another machine's that the site has named for this one.
func (f *Finder) Claim(dir string) error {
	mine := owner{Fleet: f.Fleet, Machine: f.Machine}
	have, err := readOwner(dir)
	if err == nil && (*have == mine || mine.Machine == "") {
		return nil
	}
	data, _ := spec.Encode(mine) // texts marshal
	return fault.In(durable.WriteFile(filepath.Join(dir, ownerFile), data, 0o600), "note whose disk this is")
}

// readOwner returns the record, or fs.ErrNotExist. One that others could have
// written is an error.
func readOwner(dir string) (*owner, error) {
	var o owner
	if err := readJSON(filepath.Join(dir, ownerFile), &o); err != nil {
		return nil, fmt.Errorf("owner record: %w", err)
	}
	return &o, nil
}

// readFloor returns the floor that the disk remembers, for choosing between two;
// zero where that cannot be read. The user of the state judges it again.
func readFloor(dir string) spec.Floor {
	var s struct {
		Floor spec.Floor `json:"floor"`
	}
	if readJSON(filepath.Join(dir, "state.json"), &s) != nil {
		return spec.Floor{}
	}
	return s.Floor
}

// maxRecord caps what is read of a candidate.
const maxRecord = 1 << 20

func readJSON(name string, to any) error {
	data, err := ownfiles.ReadFile(name, maxRecord)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, to)
}
