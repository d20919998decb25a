// SPDX-License-Identifier: Apache-2.0

// Here ext4 file systems are made, repaired and grown: with the programs of e2fsprogs,
// where the loader has them, and by the kernel. Whose a disk is was decided before.

package disk

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
)

// E2fsLimit ends a program. It is less than the time in which a loader must make progress, as
// each of them is; a disk whose check takes longer is set aside.
const E2fsLimit = 5 * time.Minute

// E2fsPrograms are mke2fs and e2fsck, where [paths] says that they are.
type E2fsPrograms struct{}

// E2fsInstalled reports whether they are there: a layer that was built without
// layer.stateDisk has a loader without them.
func E2fsInstalled() bool {
	return !slices.ContainsFunc(paths.DiskPrograms, func(name string) bool { _, err := os.Stat(name); return err != nil })
}

// Make makes an ext4 file system in the bytes of a device from offset on.
func (E2fsPrograms) Make(device, label string, offset, bytes int64) error {
	// No block is kept for root, who is the only one to write; nothing is discarded, since
	// the disk is empty. What mke2fs leaves to the kernel, the kernel does once it is mounted.
	code, said, err := callE2fs(paths.Mke2fs, "-q", "-F", "-t", "ext4", "-m", "0", "-L", label, "-E",
		fmt.Sprintf("offset=%d,nodiscard", offset), device, fmt.Sprintf("%dk", bytes>>10))
	if err == nil && code != 0 {
		err = fmt.Errorf("mke2fs ended with %d: %s", code, said)
	}
	return err
}

// Preen runs e2fsck as a boot does: 0 is a file system that was well, 1 and 2 one that
// is now, 4 one that needs a person. 8 alone says that e2fsck could not do its work, as on a
// disk that takes no writes: the mount says what becomes of that.
func (E2fsPrograms) Preen(device string, force bool) (string, error) {
	args := []string{"-p", device}
	if force {
		args = append([]string{"-f"}, args...)
	}
	code, said, err := callE2fs(paths.E2fsck, args...)
	switch {
	case err != nil:
		return "", err
	case code == 0, code == 8:
		return "", nil
	case code <= 3:
		return said, nil
	}
	return "", fmt.Errorf("e2fsck could not repair it by itself, and ended with %d: %s", code, said)
}

// callE2fs runs a program and returns the end of what it said.
func callE2fs(name string, args ...string) (code int, said string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), E2fsLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"}
	cmd.WaitDelay = 5 * time.Second
	out := &ext4End{}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	said = strings.Join(strings.FieldsFunc(string(out.text), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), said, nil
	}
	if err != nil {
		return 0, said, fmt.Errorf("run %s: %w", name, errors.Join(err, ctx.Err()))
	}
	return 0, said, nil
}

// ext4End keeps the last of what is written to it.
type ext4End struct{ text []byte }

const kept = 600

func (e *ext4End) Write(p []byte) (int, error) {
	e.text = append(e.text, p...)
	if len(e.text) > kept {
		e.text = append([]byte("…"), e.text[len(e.text)-kept:]...)
	}
	return len(p), nil
}

// setUUID is EXT4_IOC_SETFSUUID of linux/ext4.h (6.0); x/sys has no name for it.
const setUUID = 0x4008662c

// RenewExt4 gives a mounted ext4 file system a random identifier, where it has the one that is
// given: that of an image, which every copy has.
func RenewExt4(device, at, image string) error {
	was, err := hex.DecodeString(strings.ReplaceAll(image, "-", ""))
	if err != nil {
		return err
	}
	super, _, err := superblock(device)
	if err != nil || !isExt(super) || !bytes.Equal(super[0x68:0x78], was) {
		return err
	}
	request := struct {
		length, flags uint32
		uuid          [16]byte
	}{length: 16}
	rand.Read(request.uuid[:])
	request.uuid[6], request.uuid[8] = request.uuid[6]&0x0f|0x40, request.uuid[8]&0x3f|0x80
	return fault.In(ask(at, setUUID, unsafe.Pointer(&request)), "set the identifier of the file system")
}

// ask has the kernel do something with the file system that is mounted on a directory.
func ask(at string, request uintptr, argument unsafe.Pointer) error {
	dir, err := os.Open(at)
	if err != nil {
		return err
	}
	defer dir.Close() // only asked
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), request, uintptr(argument)); errno != 0 {
		return errno
	}
	return nil
}

// resizeFS is EXT4_IOC_RESIZE_FS of linux/ext4.h; x/sys has no name for it.
const resizeFS = 0x40086610

// GrowExt4 has a mounted ext4 file system take what its device has more, where that is at
// least much bytes. Of any other file system it changes nothing.
func GrowExt4(device, at string, much int64) error {
	super, size, err := superblock(device)
	le := binary.LittleEndian
	if err != nil || !isExt(super) || le.Uint32(super[0x18:]) > 6 {
		return err
	}
	blocks, block := int64(le.Uint32(super[4:]))|int64(le.Uint32(super[0x150:]))<<32, int64(1024)<<le.Uint32(super[0x18:])
	if size < blocks*block+much {
		return nil
	}
	count := uint64(size / block)
	return fault.In(ask(at, resizeFS, unsafe.Pointer(&count)), "grow the file system from %d to %d bytes", blocks*block, size)
}

// superblock returns what a device has where an ext file system has its superblock, and the size of
// the device.
func superblock(device string) (super []byte, size int64, err error) {
	d, err := os.Open(device)
	if err != nil {
		return nil, 0, err
	}
	defer d.Close() // only read
	if size, err = d.Seek(0, io.SeekEnd); err != nil {
		return nil, 0, err
	}
	super = make([]byte, 1024)
	_, err = d.ReadAt(super, 1024)
	return super, size, err
}

// IsExt4 reports whether a device says that it has an ext file system.
func IsExt4(device string) bool {
	super, _, err := superblock(device)
	return err == nil && isExt(super) // else the mount says what is wrong
}

// isExt reports whether a superblock is of an ext file system.
func isExt(super []byte) bool { return super[0x38] == 0x53 && super[0x39] == 0xef }

// CheckBlank tells whether a disk is empty, so that a file system may be made on it.
// Empty means zeros, not the absence of what is known: at the beginning and the end,
// where tables, file systems and what stacks disks keep their signatures, and in samples
// between, where a member of a hardware RAID has its data. Signatures that are known
// only name what was found.

const (
	edge    = 4 << 20  // read at both ends
	samples = 64       // evenly between them
	sample  = 64 << 10 // bytes of each
)

// CheckBlank returns nil where a disk of size bytes is empty, else what is on it. Who cannot
// read a disk does not know that it is empty.
func CheckBlank(disk io.ReaderAt, size int64) error {
	if size < 2*edge {
		return fmt.Errorf("it has %d bytes, which is less than is looked at", size)
	}
	head, err := span(disk, 0, edge)
	if err != nil {
		return err
	}
	tail, err := span(disk, size-edge, edge)
	if err != nil {
		return err
	}
	if what := named(head, tail); what != "" {
		return fmt.Errorf("it is not empty: %s", what)
	}
	if err := cmp.Or(zeros(head, 0), zeros(tail, size-edge)); err != nil {
		return err
	}
	step := (size - 2*edge) / samples
	for i := range int64(samples) {
		at := (edge + i*step) &^ 4095
		data, err := span(disk, at, min(sample, size-edge-at))
		if err != nil {
			return err
		}
		if err := zeros(data, at); err != nil {
			return err
		}
	}
	return nil
}

// ErrUnreadable is returned for a disk that cannot be read: what is on it nobody knows.
var ErrUnreadable = errors.New("it cannot be read")

// Contents says in words what is on a disk or a partition.
func Contents(disk io.ReaderAt, size int64) string {
	err := CheckBlank(disk, size)
	if err == nil {
		return "nothing"
	}
	return strings.TrimPrefix(err.Error(), "it is not empty: ")
}

func span(disk io.ReaderAt, at, n int64) ([]byte, error) {
	data := make([]byte, max(n, 0))
	if _, err := disk.ReadAt(data, at); err != nil && !(errors.Is(err, io.EOF) && n == 0) {
		return nil, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return data, nil
}

func zeros(data []byte, at int64) error {
	if rest := bytes.TrimLeft(data, "\x00"); len(rest) > 0 {
		return fmt.Errorf("it is not empty: something at byte %d", at+int64(len(data)-len(rest)))
	}
	return nil
}

// signature holds the bytes of a kind of content at a place; one below zero counts from the end.
type signature struct {
	at   int
	text string
	what string
}

// signatures are in the order in which they name what is there: what lies around others
// first. A partition table is last of those at the beginning, since boot sectors end as
// it does.
var signatures = []signature{
	{0, "LUKS\xba\xbe", "a LUKS volume"},
	{3, "-FVE-FS-", "a BitLocker volume"},
	{512, "LABELONE", "an LVM physical volume"}, {0, "LABELONE", "an LVM physical volume"},
	{1024, "LABELONE", "an LVM physical volume"}, {1536, "LABELONE", "an LVM physical volume"},
	{4096, "\xfc\x4e\x2b\xa9", "a member of an md RAID"}, {0, "\xfc\x4e\x2b\xa9", "a member of an md RAID"},
	{-8192, "\xfc\x4e\x2b\xa9", "a member of an md RAID"},
	{-65536, "\xfc\x4e\x2b\xa9", "a member of an md RAID"}, {-131072, "\xfc\x4e\x2b\xa9", "a member of an md RAID"},
	{-1024, "Intel Raid ISM Cfg Sig. ", "a member of a firmware RAID"}, {-512, "\xde\x11\xde\x11", "a member of a firmware RAID"},
	{4120, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache device"},
	{0, "XFSB", "an xfs file system"},
	{65600, "_BHRfS_M", "a btrfs file system"},
	{1080, "\x53\xef", "an ext file system"},
	{1024, "\x10\x20\xf5\xf2", "an f2fs file system"},
	{32769, "CD001", "an ISO 9660 image"},
	{3, "NTFS    ", "an NTFS file system"}, {3, "EXFAT   ", "an exFAT file system"}, {54, "FAT1", "a FAT file system"},
	{82, "FAT32", "a FAT file system"},
	{0, "hsqs", "a squashfs image"},
	{4086, "SWAPSPACE2", "swap space"}, {4086, "SWAP-SPACE", "swap space"}, {65526, "SWAPSPACE2", "swap space"},
	{16374, "SWAPSPACE2", "swap space"},
	{512, "EFI PART", "a GUID partition table"}, {4096, "EFI PART", "a GUID partition table"},
	{-512, "EFI PART", "the copy of a GUID partition table"},
	{510, "\x55\xaa", "a partition table or boot sector"},
}

// zfs has its labels twice at both ends, with a ring of uberblocks in each.
var zfs = []byte{0x0c, 0xb1, 0xba, 0, 0, 0, 0, 0}

const (
	zfsLabel = 256 << 10
	zfsRing  = 128 << 10 // in a label
	zfsSlot  = 1 << 10
)

// named returns what the ends of a disk are known to be of, "" for nothing known.
func named(head, tail []byte) string {
	for _, s := range signatures {
		from, at := head, s.at
		if at < 0 {
			from, at = tail, len(tail)+at
		}
		if bytes.HasPrefix(from[at:], []byte(s.text)) {
			return s.what
		}
	}
	for _, label := range [][]byte{head[:zfsLabel], head[zfsLabel : 2*zfsLabel], tail[len(tail)-2*zfsLabel:]} {
		for at := zfsRing; at < zfsLabel; at += zfsSlot {
			if bytes.HasPrefix(label[at:], zfs) {
				return "a member of a ZFS pool"
			}
		}
	}
	return ""
}
