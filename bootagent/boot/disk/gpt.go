// SPDX-License-Identifier: Apache-2.0

// Here is the partition table of a disk that the loader makes a state disk of, and the note
// in its first sector that says so until that is done.
//
// A disk with a GUID partition table leaves 440 bytes of the first sector to other boot
// loaders. A note there is written and removed with one sector, which no power cut tears:
// with it, table and file system are made again, or the table alone. There is one
// layout, and which disk may be written to is decided before.

package disk

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"

	"github.com/caisson-os/caisson/internal/paths"
)

// Layout is the GUID partition table of a disk that caisson made: the state partition, from
// Start to the end, and where Boot is set the one before it that firmware starts from. See
// the UEFI specification, chapter 5.
type Layout struct {
	Size, Sector    int64
	Start           int64    // first byte of the partition
	Disk, Partition [16]byte // identifiers, as they are stored
	Boot            bool     // the partition before Start has the identifier of the disk, but for its last bit
}

const (
	Mebibyte    = 1 << 20
	BootRoom    = 1 << 30             // for the partition of a loader
	LayoutStart = Mebibyte + BootRoom // of the partition of a new disk: nothing is ever shrunk
	BootNumber  = 2                   // of that partition
	entries     = 128                 // in a table
	entry       = 128                 // bytes of one
)

// linuxData is the type of the partition: a file system of Linux.
var linuxData = [16]byte{0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4}

// system is the type of the partition that firmware starts from.
var system = [16]byte{0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b}

// image are the identifiers of a disk that was copied and that no machine has made its own.
var image = Layout{Disk: storedNote(paths.ImageDisk), Partition: storedNote(paths.ImageState)}

// NewLayout returns a layout with identifiers of its own. Sizes are in bytes.
func NewLayout(size, sector, start int64) Layout {
	t := Layout{Size: size, Sector: sector, Start: start}
	for _, id := range []*[16]byte{&t.Disk, &t.Partition} {
		rand.Read(id[:])
		id[7], id[8] = id[7]&0x0f|0x40, id[8]&0x3f|0x80 // a random UUID, its first fields little-endian
	}
	return t
}

// end is the byte after the partition: the copy of the table comes after it.
func (t Layout) end() int64 {
	return (t.Size - entries*entry - t.Sector) / Mebibyte * Mebibyte
}

// Write writes the table: its copy first, since the kernel reads the first one.
func (t Layout) Write(w io.WriterAt) error {
	list := t.entries()
	last := t.Size/t.Sector - 1
	copyAt := last - entries*entry/t.Sector
	for _, part := range []struct {
		at   int64
		data []byte
	}{
		{copyAt * t.Sector, list}, {last * t.Sector, t.header(list, last, 1, copyAt)},
		{2 * t.Sector, list}, {t.Sector, t.header(list, 1, last, 2)},
	} {
		if _, err := w.WriteAt(part.data, part.at); err != nil {
			return fmt.Errorf("write the partition table: %w", err)
		}
	}
	return nil
}

func (t Layout) entries() []byte {
	list := make([]byte, entries*entry)
	copy(list, linuxData[:])
	copy(list[16:], t.Partition[:])
	binary.LittleEndian.PutUint64(list[32:], uint64(t.Start/t.Sector))
	binary.LittleEndian.PutUint64(list[40:], uint64(t.end()/t.Sector-1))
	partitionName(list, paths.StateLabel)
	if t.Boot {
		second := list[entry:]
		copy(second, system[:])
		id := t.bootID()
		copy(second[16:], id[:])
		binary.LittleEndian.PutUint64(second[32:], uint64(Mebibyte/t.Sector))
		binary.LittleEndian.PutUint64(second[40:], uint64(t.Start/t.Sector-1))
		partitionName(second, paths.BootLabel)
	}
	return list
}

func partitionName(entry []byte, text string) {
	for i, c := range utf16.Encode([]rune(text)) {
		binary.LittleEndian.PutUint16(entry[56+2*i:], c)
	}
}

func (t Layout) bootID() [16]byte {
	id := t.Disk
	id[15] ^= 1
	return id
}

// header is the sector that describes a table's list of entries.
func (t Layout) header(list []byte, at, other, listAt int64) []byte {
	h := make([]byte, t.Sector)
	le := binary.LittleEndian
	copy(h, "EFI PART")
	le.PutUint32(h[8:], 0x00010000)
	le.PutUint32(h[12:], 92)
	le.PutUint64(h[24:], uint64(at))
	le.PutUint64(h[32:], uint64(other))
	length := entries * entry / t.Sector
	le.PutUint64(h[40:], uint64(2+length))
	le.PutUint64(h[48:], uint64(t.Size/t.Sector-2-length))
	copy(h[56:], t.Disk[:])
	le.PutUint64(h[72:], uint64(listAt))
	le.PutUint32(h[80:], entries)
	le.PutUint32(h[84:], entry)
	le.PutUint32(h[88:], crc32.ChecksumIEEE(list))
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:92]))
	return h
}

// Alone returns an error unless what stands in the place of the table is nothing, this
// table or a torn part of it. Whatever else was put there is not ours to write over.
func (t Layout) Alone(r io.ReaderAt) error {
	data := make([]byte, t.Sector+entries*entry)
	if _, err := r.ReadAt(data, t.Sector); err != nil {
		return err
	}
	header, list := data[:t.Sector], data[t.Sector:]
	if !isEmptyEntry(header) && (!bytes.HasPrefix(header, []byte("EFI PART")) ||
		!t.isOurs(header[56:72], func(t Layout) [16]byte { return t.Disk })) {
		return fmt.Errorf("another partition table is on it")
	}
	if !isEmptyEntry(list[:entry]) && !t.isOurs(list[16:32], func(t Layout) [16]byte { return t.Partition }) {
		return fmt.Errorf("another partition is on it")
	}
	rest := list[entry:]
	if t.Boot && t.isOurs(rest[16:32], Layout.bootID) {
		rest = rest[entry:]
	}
	if !isEmptyEntry(rest) {
		return fmt.Errorf("another partition is on it")
	}
	return nil
}

// isOurs reports whether an identifier is the layout's own, or the one that it replaces of a
// disk that was copied.
func (t Layout) isOurs(id []byte, of func(Layout) [16]byte) bool {
	own, copied := of(t), of(image)
	return bytes.Equal(id, own[:]) || t.Boot && bytes.Equal(id, copied[:])
}

func isEmptyEntry(data []byte) bool { return len(bytes.Trim(data, "\x00")) == 0 }

// What is being done to a disk while its first sector says so.
const (
	StepMaking  = "making"  // table and file system
	StepGrowing = "growing" // the table alone

	withBoot = "+boot" // behind either, where the table has the partition that firmware starts from
)

// bootCode is the part of the first sector that a disk with a GUID partition table has
// for other boot loaders; a note there is written and removed with one sector, which no
// power cut tears.
const bootCode = 440

// Note returns the text for the first sector of a disk that is being changed: the step, for
// which fleet, where its partition starts, and the identifiers that tell its table from others.
func (t Layout) Note(step, fleet string) string {
	if t.Boot {
		step += withBoot
	}
	return fmt.Sprintf("%s %s %x %x %d %.200s\n", paths.StateLabel, step, t.Disk, t.Partition, t.Start, fleet)
}

// First is the first sector: a note, or none, and the entry that tells old programs that
// the disk is in use.
func (t Layout) First(note string) []byte {
	b := make([]byte, t.Sector)
	copy(b[:bootCode], note)
	copy(b[446:], []byte{0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1, 0, 0, 0})
	binary.LittleEndian.PutUint32(b[458:], uint32(min(t.Size/t.Sector-1, 0xffffffff)))
	b[510], b[511] = 0x55, 0xaa
	return b
}

// ReadNote returns what is being done to a disk, and for which fleet; step is "" where
// nothing is.
func ReadNote(r io.ReaderAt, size, sector int64) (t Layout, step, fleet string, err error) {
	b := make([]byte, bootCode)
	if _, err := r.ReadAt(b, 0); err != nil {
		return t, "", "", err
	}
	line, _, _ := strings.Cut(string(b), "\n")
	words := strings.SplitN(line, " ", 6)
	if len(words) != 6 || words[0] != paths.StateLabel {
		return t, "", "", nil
	}
	t = Layout{Size: size, Sector: sector}
	for i, id := range []*[16]byte{&t.Disk, &t.Partition} {
		read, err := hex.DecodeString(words[2+i])
		if err != nil || len(read) != len(id) {
			return t, "", "", fmt.Errorf("its first sector has a note that cannot be read: %.80q", line)
		}
		*id = [16]byte(read)
	}
	if t.Start, err = strconv.ParseInt(words[4], 10, 64); err != nil || t.Start < Mebibyte || t.Start%Mebibyte != 0 ||
		size >= Mebibyte && t.Start >= t.end() {
		return t, "", "", fmt.Errorf("its first sector has a note that cannot be read: %.80q", line)
	}
	step, t.Boot = strings.CutSuffix(words[1], withBoot)
	return t, step, words[5], nil
}

// OwnTable reads the table of a disk that caisson made, or 'caisson image'. own says that it is one:
// no boot code, and no other partition. end is the byte after the state partition.
func OwnTable(r io.ReaderAt, size, sector int64) (t Layout, end int64, own bool, err error) {
	data := make([]byte, 2*sector+entries*entry)
	if _, err := r.ReadAt(data, 0); err != nil {
		return t, 0, false, err
	}
	header, list := data[sector:2*sector], data[2*sector:]
	le := binary.LittleEndian
	if !isEmptyEntry(data[:bootCode]) || !bytes.HasPrefix(header, []byte("EFI PART")) || le.Uint64(header[72:]) != 2 {
		return t, 0, false, nil
	}
	t = Layout{Size: size, Sector: sector}
	copy(t.Disk[:], header[56:72])
	copy(t.Partition[:], list[16:32])
	t.Start = int64(le.Uint64(list[32:40])) * sector
	t.Boot = bytes.Equal(list[entry:entry+16], system[:])
	want := t.entries()
	copy(want[40:48], list[40:48]) // all but the end is the same
	return t, (int64(le.Uint64(list[40:])) + 1) * sector, bytes.Equal(list, want), nil
}

// WiderTable returns the table that a disk would have if it were made now, and whether it is
// another one of the same disk, whose partition has at least much bytes more. Of a disk that
// was copied it is always another one, with identifiers of its own.
func WiderTable(r io.ReaderAt, size, sector, much int64) (t Layout, more bool, err error) {
	t, end, own, err := OwnTable(r, size, sector)
	if err != nil || !own {
		return t, false, err
	}
	if t.Copied() {
		own := NewLayout(size, sector, t.Start)
		own.Boot = t.Boot
		return own, t.end() >= end, nil
	}
	return t, t.end() >= end+much, nil
}

// Copied reports whether the identifiers are those of every copy of a disk.
func (t Layout) Copied() bool { return t.Boot && t.Disk == image.Disk }

// Serial gives the file system that firmware starts from, where 'caisson image' made it, a
// serial number that belongs to the disk's identifier.
func (t Layout) Serial(d interface {
	io.ReaderAt
	io.WriterAt
}) error {
	if !t.Boot {
		return nil
	}
	const serial = 67                 // see package media/format
	for _, n := range []int64{0, 6} { // the second is a copy
		first := make([]byte, t.Sector)
		at := Mebibyte + n*t.Sector
		if _, err := d.ReadAt(first, at); err != nil {
			return err
		}
		if string(first[3:11]) != "caisson " {
			continue
		}
		copy(first[serial:serial+4], t.Disk[:4])
		if _, err := d.WriteAt(first, at); err != nil {
			return fmt.Errorf("write the serial number of the loader's file system: %w", err)
		}
	}
	return nil
}

// storedNote is an identifier as tables have it, its first fields little-endian.
func storedNote(text string) (id [16]byte) {
	if n, err := hex.Decode(id[:], []byte(strings.ReplaceAll(text, "-", ""))); err != nil || n != len(id) {
		panic("identifier " + text)
	}
	slices.Reverse(id[:4])
	slices.Reverse(id[4:6])
	slices.Reverse(id[6:8])
	return id
}
