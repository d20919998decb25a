// SPDX-License-Identifier: Apache-2.0

package blank

import "bytes"

// signature is what a kind of content has at a place; one below zero counts from the end.
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
	{512, "LABELONE", "an LVM physical volume"}, {0, "LABELONE", "an LVM physical volume"}, {1024, "LABELONE", "an LVM physical volume"}, {1536, "LABELONE", "an LVM physical volume"},
	{4096, "\xfc\x4e\x2b\xa9", "a member of an md RAID"}, {0, "\xfc\x4e\x2b\xa9", "a member of an md RAID"}, {-8192, "\xfc\x4e\x2b\xa9", "a member of an md RAID"},
	{-65536, "\xfc\x4e\x2b\xa9", "a member of an md RAID"}, {-131072, "\xfc\x4e\x2b\xa9", "a member of an md RAID"},
	{-1024, "Intel Raid ISM Cfg Sig. ", "a member of a firmware RAID"}, {-512, "\xde\x11\xde\x11", "a member of a firmware RAID"},
	{4120, "\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81", "a bcache device"},
	{0, "XFSB", "an xfs file system"},
	{65600, "_BHRfS_M", "a btrfs file system"},
	{1080, "\x53\xef", "an ext file system"},
	{1024, "\x10\x20\xf5\xf2", "an f2fs file system"},
	{32769, "CD001", "an ISO 9660 image"},
	{3, "NTFS    ", "an NTFS file system"}, {3, "EXFAT   ", "an exFAT file system"}, {54, "FAT1", "a FAT file system"}, {82, "FAT32", "a FAT file system"},
	{0, "hsqs", "a squashfs image"},
	{4086, "SWAPSPACE2", "swap space"}, {4086, "SWAP-SPACE", "swap space"}, {65526, "SWAPSPACE2", "swap space"}, {16374, "SWAPSPACE2", "swap space"},
	{512, "EFI PART", "a GUID partition table"}, {4096, "EFI PART", "a GUID partition table"}, {-512, "EFI PART", "the copy of a GUID partition table"},
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
