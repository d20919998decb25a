// SPDX-License-Identifier: Apache-2.0

package loader

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/caisson-os/caisson/internal/fatentry"
	"github.com/caisson-os/caisson/internal/plain"
)

// File is a file of a folder.
type File struct {
	Name string
	Size int64

	folder bool
	first  uint32
	short  string
	from   int // first slot
	record int // slot with the record, the last one
}

// fatFolder is a folder's records, and where they are.
type fatFolder struct {
	list []uint32 // its clusters
	data []byte   // slots
	old  []byte   // as they are on the disk
}

// Files returns the files of a folder, in its order; none where it is not there.
func (v *Volume) Files(name string) ([]File, error) {
	f, err := v.folder(name)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(f.files(), func(e File) bool { return e.folder }), nil
}

// folder reads a folder, "EFI/Linux".
func (v *Volume) folder(name string) (*fatFolder, error) {
	at := v.root
	for part := range strings.SplitSeq(name, "/") {
		f, err := v.read(v.clusters(at))
		if err != nil {
			return nil, err
		}
		e := f.find(part)
		if e == nil || !e.folder {
			return nil, fmt.Errorf("there is no folder %s", name)
		}
		at = e.first
	}
	return v.read(v.clusters(at))
}

// clusters are those of a chain that walk has found whole.
func (v *Volume) clusters(from uint32) (list []uint32) {
	for c := from; c < ended; c = v.next(c) {
		list = append(list, c)
	}
	return list
}

// largest is how many bytes a folder has at most, see the specification.
const largest = 2 << 20

func (v *Volume) read(list []uint32) (*fatFolder, error) {
	if int64(len(list))*v.cluster > largest {
		return nil, fmt.Errorf("a folder of %d clusters", len(list))
	}
	f := &fatFolder{list: list, data: make([]byte, int64(len(list))*v.cluster)}
	for i, c := range list {
		if _, err := v.d.ReadAt(f.data[int64(i)*v.cluster:int64(i+1)*v.cluster], v.at(c)); err != nil {
			return nil, err
		}
	}
	f.old = bytes.Clone(f.data)
	return f, nil
}

// write writes the sectors of a folder that have changed, the last one first: what stands
// behind the end counts once the end is further on.
func (v *Volume) write(f *fatFolder) error {
	for at := len(f.data) - sector; at >= 0; at -= sector {
		now := f.data[at : at+sector]
		if bytes.Equal(now, f.old[at:at+sector]) {
			continue
		}
		if _, err := v.d.WriteAt(now, v.at(f.list[int64(at)/v.cluster])+int64(at)%v.cluster); err != nil {
			return err
		}
		if err := v.d.Sync(); err != nil {
			return err
		}
		copy(f.old[at:], now)
	}
	return nil
}

// extend gives a folder another cluster.
func (v *Volume) extend(f *fatFolder, c uint32) error {
	if _, err := v.d.WriteAt(make([]byte, v.cluster), v.at(c)); err != nil {
		return err
	}
	if err := v.d.Sync(); err != nil {
		return err
	}
	if err := v.link([]uint32{c}); err != nil { // a chain never leads to a cluster that is free
		return err
	}
	f.list = append(f.list, c)
	f.data, f.old = append(f.data, make([]byte, v.cluster)...), append(f.old, make([]byte, v.cluster)...)
	return v.link(f.list)
}

func (f *fatFolder) slot(n int) []byte { return f.data[n*fatentry.Slot : (n+1)*fatentry.Slot] }

func (f *fatFolder) slots() int { return len(f.data) / fatentry.Slot }

// end is the first slot behind those that count.
func (f *fatFolder) end() int {
	for n := range f.slots() {
		if f.slot(n)[0] == 0 {
			return n
		}
	}
	return f.slots()
}

// files returns the entries of a folder, but for itself and the one above.
func (f *fatFolder) files() (list []File) {
	le := binary.LittleEndian
	begun := -1
	for n := range f.end() {
		b := f.slot(n)
		switch {
		case b[0] == deleted || b[11]&fatentry.Long == fatentry.Label:
			begun = -1
		case b[11]&fatentry.Long == fatentry.Long:
			if b[0]&0x40 != 0 {
				begun = n
			}
		default:
			short := string(b[:11])
			e := File{Name: plain.With(strings.TrimRight(short[:8], " "), ".", strings.TrimRight(short[8:], " ")),
				Size: int64(le.Uint32(b[28:])), folder: b[11]&fatentry.Folder != 0,
				first: uint32(le.Uint16(b[20:]))<<16 | uint32(le.Uint16(b[26:])), short: short, from: n, record: n}
			if name := f.long(begun, n, fatentry.Sum(short)); name != "" {
				e.Name, e.from = name, begun
			}
			begun = -1
			if b[0] != '.' {
				list = append(list, e)
			}
		}
	}
	return list
}

// long is the name that the slots from begun to the record at n spell, "" where they spell none.
func (f *fatFolder) long(begun, n int, sum byte) string {
	if begun < 0 {
		return ""
	}
	var units []uint16
	for i := n - 1; i >= begun; i-- {
		b := f.slot(i)
		if int(b[0]&0x3f) != n-i || b[13] != sum {
			return ""
		}
		for _, at := range fatentry.At {
			units = append(units, binary.LittleEndian.Uint16(b[at:]))
		}
	}
	if i := slices.Index(units, 0); i >= 0 {
		units = units[:i]
	}
	return string(utf16.Decode(units))
}

func (f *fatFolder) find(name string) *File {
	for _, e := range f.files() {
		if strings.EqualFold(e.Name, name) {
			return &e
		}
	}
	return nil
}

func (f *fatFolder) has(short string) bool {
	return slices.ContainsFunc(f.files(), func(e File) bool { return e.short == short })
}

// inSector is how many slots a sector has.
const inSector = sector / fatentry.Slot

func sectorOf(slot int) int { return slot / inSector }

// place finds n slots in one sector that are free, or those of a file that gives way; those of
// the same sector first. more is 1 where the folder has to grow for them.
func (f *fatFolder) place(n int, giving *File) (at, more int, err error) {
	if n > inSector {
		return 0, 0, fmt.Errorf("a name of %d records", n)
	}
	end := f.end()
	free := func(slot int) bool {
		return slot >= end || f.slot(slot)[0] == deleted || giving != nil &&
			sectorOf(giving.from) == sectorOf(giving.record) && slot >= giving.from && slot <= giving.record
	}
	fits := func(at int) bool {
		if sectorOf(at) != sectorOf(at+n-1) {
			return false
		}
		for i := range n {
			if !free(at + i) {
				return false
			}
		}
		return true
	}
	if giving != nil {
		from := sectorOf(giving.from) * inSector
		for at := from; at < from+inSector; at++ {
			if fits(at) && at <= end {
				return at, 0, nil
			}
		}
	}
	for at := range f.slots() {
		if fits(at) {
			return at, 0, nil
		}
	}
	return f.slots(), 1, nil
}

// put writes the records of an entry. What is between the end and them is made deleted, and
// what follows them the end, where nothing followed.
func (f *fatFolder) put(at int, e fatentry.Entry) {
	end := f.end()
	records := e.Records()
	after := at + len(records)/fatentry.Slot
	if after > end && after < f.slots() {
		f.slot(after)[0] = 0
	}
	copy(f.data[at*fatentry.Slot:], records)
	for n := end; n < at; n++ {
		clear(f.slot(n))
		f.slot(n)[0] = deleted
	}
}

// drop makes the records of a file deleted.
func (f *fatFolder) drop(e File) {
	for n := e.from; n <= e.record; n++ {
		f.slot(n)[0] = deleted
	}
}
