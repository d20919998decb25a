// SPDX-License-Identifier: Apache-2.0

// UEFI firmware boots an ISO 9660 image as a CD, by El Torito. The
// image holds one file, the file system of an EFI system partition, which lies where a
// partition table in the image's system area can name it, too: the same bytes boot as a USB
// stick. See ECMA-119, "El Torito" Bootable CD-ROM Format 1.0, and chapter 13.3.2 of the
// UEFI specification.

package format

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"time"
)

// ISO is an image to write.
type ISO struct {
	Label string    // of the volume: at most 32 capitals, digits and underscores
	Date  time.Time // of the volume and its file, in UTC
	Boot  int64     // bytes of the partition, whole sectors
}

// Where things are, in sectors.
const (
	Sector     = 2048 // bytes
	volumeAt   = 16
	bootAt     = 17
	endAt      = 18
	catalogAt  = 19
	littleAt   = 20
	bigAt      = 21
	rootAt     = 22
	fileAt     = 512 // 1 MiB, where a partition may begin
	trailer    = 9   // sectors for the copy of the partition table
	fileName   = "ESP.IMG;1"
	descriptor = "CD001\x01"
)

// BootAt is the first byte of the partition.
const BootAt = fileAt * Sector

// Size returns the bytes of the whole image, with room for the copy of a partition table.
func (i ISO) Size() int64 { return BootAt + i.Boot + trailer*Sector }

// largest is the size of a file whose records just fit into the sector of the folder.
const largest = 32 * extent

// Write writes all but the partition itself and the first 16 sectors, which are the system
// area's. w reads as zeros.
func (i ISO) Write(w io.WriterAt) error {
	if i.Boot > largest {
		return fmt.Errorf("a partition of %d bytes: a CD takes at most %d", i.Boot, int64(largest))
	}
	for at, data := range map[int64][]byte{
		volumeAt: i.volume(), bootAt: bootRecord(), endAt: append([]byte{255}, descriptor...),
		catalogAt: bootCatalog(), littleAt: pathTable(binary.LittleEndian), bigAt: pathTable(binary.BigEndian), rootAt: i.root(),
	} {
		if _, err := w.WriteAt(append(data, make([]byte, Sector-len(data))...), at*Sector); err != nil {
			return err
		}
	}
	return nil
}

// volume is the primary volume descriptor.
func (i ISO) volume() []byte {
	b := make([]byte, Sector)
	b[0] = 1
	copy(b[1:], descriptor)
	isoText(b[8:40], "")
	isoText(b[40:72], i.Label)
	both32(b[80:], i.Size()/Sector)
	both16(b[120:], 1) // volumes of the set
	both16(b[124:], 1) // this one
	both16(b[128:], Sector)
	both32(b[132:], int64(len(pathTable(binary.LittleEndian))))
	binary.LittleEndian.PutUint32(b[140:], littleAt)
	binary.BigEndian.PutUint32(b[148:], bigAt)
	copy(b[156:190], i.record("\x00", rootAt, Sector, isFolder))
	isoText(b[190:813], "") // names of people and files that nobody gives
	isoText(b[574:702], "CAISSON")
	date := []byte(i.Date.UTC().Format("2006010215040500") + "\x00")
	never := []byte(strings.Repeat("0", 16) + "\x00")
	for n, d := range [][]byte{date, date, never, never} {
		copy(b[813+17*n:], d)
	}
	b[881] = 1
	return b
}

// bootRecord says where the boot catalog is.
func bootRecord() []byte {
	b := make([]byte, 75)
	copy(b[1:], descriptor)
	copy(b[7:], "EL TORITO SPECIFICATION")
	binary.LittleEndian.PutUint32(b[71:], catalogAt)
	return b
}

// bootCatalog names the partition for UEFI. Its size is given as 0 sectors, by which UEFI means
// all up to the end of the volume: the field ends at 32 MiB, and a loader is larger.
func bootCatalog() []byte {
	b := make([]byte, 64)
	b[0], b[1] = 1, 0xef // the platform: UEFI
	b[30], b[31] = 0x55, 0xaa
	sum := uint16(0)
	for n := 0; n < 32; n += 2 {
		sum += binary.LittleEndian.Uint16(b[n:])
	}
	binary.LittleEndian.PutUint16(b[28:], -sum)
	b[32] = 0x88 // bootable, without emulation of a disk
	binary.LittleEndian.PutUint32(b[40:], fileAt)
	return b
}

// pathTable lists the one folder.
func pathTable(order binary.AppendByteOrder) []byte {
	b := []byte{1, 0}
	b = order.AppendUint32(b, rootAt)
	b = order.AppendUint16(b, 1) // its parent is itself
	return append(b, 0, 0)
}

// root is the one folder.
func (i ISO) root() []byte {
	b := i.record("\x00", rootAt, Sector, isFolder)
	b = append(b, i.record("\x01", rootAt, Sector, isFolder)...)
	at, left := int64(fileAt), i.Boot
	for ; left > extent; at, left = at+extent/Sector, left-extent {
		b = append(b, i.record(fileName, at, extent, isMore)...)
	}
	return append(b, i.record(fileName, at, left, 0)...)
}

// extent is how much of a file one record names: its size has 32 bits. A larger file has several,
// see ECMA-119, 6.5.1.
const extent = 1<<32 - Sector

// Flags of a record.
const (
	isFolder = 1 << 1
	isMore   = 1 << 7 // of the file: the next record names it
)

// record returns what a folder says of one of its entries.
func (i ISO) record(name string, at, size int64, flags byte) []byte {
	b := make([]byte, 33+len(name)+(len(name)+1)%2)
	b[0] = byte(len(b))
	both32(b[2:], at)
	both32(b[10:], size)
	d := i.Date.UTC()
	copy(b[18:], []byte{byte(d.Year() - 1900), byte(d.Month()), byte(d.Day()), byte(d.Hour()), byte(d.Minute()), byte(d.Second()), 0})
	b[25] = flags
	both16(b[28:], 1)
	b[32] = byte(len(name))
	copy(b[33:], name)
	return b
}

// isoText fills a field up with blanks.
func isoText(field []byte, s string) {
	copy(field, s+strings.Repeat(" ", max(0, len(field)-len(s))))
}

// both16 and both32 write a number in both byte orders, one after the other.
func both16(b []byte, n uint16) {
	binary.LittleEndian.PutUint16(b, n)
	binary.BigEndian.PutUint16(b[2:], n)
}

func both32(b []byte, n int64) {
	binary.LittleEndian.PutUint32(b, uint32(n))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
}

// ISOData writes an image that nothing boots from: one file, whose name has no extension. w reads
// as zeros, and is made as long as the image is.
func ISOData(w io.WriterAt, label, name string, date time.Time, content []byte) error {
	i := ISO{Label: label, Date: date}
	sectors := (int64(len(content)) + Sector - 1) / Sector
	root := append(i.record("\x00", rootAt, Sector, isFolder), i.record("\x01", rootAt, Sector, isFolder)...)
	root = append(root, i.record(name+".;1", dataAt, int64(len(content)), 0)...)
	volume := i.volume()
	both32(volume[80:], dataAt+sectors)
	for at, data := range map[int64][]byte{
		volumeAt: volume, bootAt: append([]byte{255}, descriptor...), // the end of the descriptors: there is no boot record
		littleAt: pathTable(binary.LittleEndian), bigAt: pathTable(binary.BigEndian), rootAt: root, dataAt: content,
	} {
		if _, err := w.WriteAt(append(data, make([]byte, -len(data)&(Sector-1))...), at*Sector); err != nil {
			return err
		}
	}
	return nil
}

// dataAt is the sector of the file.
const dataAt = rootAt + 1
