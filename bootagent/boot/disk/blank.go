// SPDX-License-Identifier: Apache-2.0

// CheckBlank tells whether a disk is empty, so that a file system may be made on it.
// Empty means zeros, not the absence of what is known: at the beginning and the end,
// where tables, file systems and what stacks disks keep their signatures, and in samples
// between, where a member of a hardware RAID has its data. Signatures that are known
// only name what was found.

package disk

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
)

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
