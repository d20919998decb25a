// SPDX-License-Identifier: Apache-2.0

// Package fatentry spells what a folder of a FAT32 file system says of a file: a record with
// a name of 11 characters, and records with the long name before it. See "FAT: General
// Overview of On-Disk Format", Microsoft.
//
// It knows no folder and no disk. Packages that make a file system import it, and those that change
// one.
package fatentry

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf16"
)

// Kinds of records, their attributes.
const (
	File   = 0x20 // that a backup has not seen
	Folder = 0x10
	Label  = 0x08
	Long   = 0x0f
	Slot   = 32 // bytes of a record
)

// Entry describes an entry of a folder.
type Entry struct {
	Name    string // as people spell it
	Short   string // 11 characters, see [Shorten]
	Kind    byte
	Cluster int64 // the first one
	Size    int64 // of a file
	Date    time.Time
}

// Records are those of an entry: its long name, the last part first, and the record.
func (e Entry) Records() []byte { return append(e.long(), e.record()...) }

// names are those that firmware and kernels read alike; short ones need no long record.
var (
	names = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._+-]*$`)
	plain = regexp.MustCompile(`^[0-9A-Z_-]{1,8}(\.[0-9A-Z_-]{1,3})?$`)
	other = regexp.MustCompile(`[^0-9A-Z_-]`)
)

// CheckName refuses what cannot be the name of a file that firmware reads.
func CheckName(name string) error {
	if len(name) > 200 || !names.MatchString(name) || strings.HasSuffix(name, ".") {
		return fmt.Errorf("%.80q cannot be a name of a file that firmware reads", name)
	}
	return nil
}

// Shorten returns a name of 11 characters that no other entry of the folder has.
func Shorten(name string, taken func(short string) bool) string {
	stem, extension := name, ""
	if dot := strings.LastIndexByte(name, '.'); dot > 0 {
		stem, extension = name[:dot], name[dot+1:]
	}
	if plain.MatchString(name) {
		return Padded(stem, 8) + Padded(extension, 3)
	}
	stem = other.ReplaceAllString(strings.ToUpper(stem), "")
	extension = other.ReplaceAllString(strings.ToUpper(extension), "")
	for n := 1; ; n++ {
		tail := fmt.Sprintf("~%d", n)
		short := Padded(stem[:min(len(stem), 8-len(tail))]+tail, 8) + Padded(extension, 3)
		if !taken(short) {
			return short
		}
	}
}

// PerRecord is how many characters of a long name one record has.
const PerRecord = 13

// Slots counts the records of an entry with a name.
func Slots(name string) int {
	if plain.MatchString(name) {
		return 1
	}
	return 1 + (len(name)+PerRecord-1)/PerRecord
}

// long are the records with an entry's long name, the last part first; none for a name
// that is short.
func (e Entry) long() []byte {
	parts := Slots(e.Name) - 1
	if parts == 0 {
		return nil
	}
	units := utf16.Encode([]rune(e.Name))
	if len(units) < parts*PerRecord {
		units = append(units, 0)
	}
	for len(units) < parts*PerRecord {
		units = append(units, 0xffff)
	}
	sum := Sum(e.Short)
	var all []byte
	for part := parts; part > 0; part-- {
		b := make([]byte, Slot)
		b[0] = byte(part)
		if part == parts {
			b[0] |= 0x40
		}
		b[11], b[13] = Long, sum
		for i, unit := range units[(part-1)*PerRecord : part*PerRecord] {
			binary.LittleEndian.PutUint16(b[At[i]:], unit)
		}
		all = append(all, b...)
	}
	return all
}

// Sum returns the sum that ties the records of a long name to the one that they stand before.
func Sum(short string) (sum byte) {
	for _, c := range []byte(short) {
		sum = sum>>1 | sum<<7
		sum += c
	}
	return sum
}

// At are the places of the characters in a record of a long name.
var At = [PerRecord]int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30}

// Padded fills a name up with blanks.
func Padded(name string, to int) string {
	name = name[:min(len(name), to)]
	return name + strings.Repeat(" ", to-len(name))
}

func (e Entry) record() []byte {
	b := make([]byte, Slot)
	le := binary.LittleEndian
	copy(b, e.Short)
	b[11] = e.Kind
	day, second := stamp(e.Date)
	le.PutUint16(b[14:], second)
	le.PutUint16(b[16:], day)
	le.PutUint16(b[18:], day)
	le.PutUint16(b[20:], uint16(e.Cluster>>16))
	le.PutUint16(b[22:], second)
	le.PutUint16(b[24:], day)
	le.PutUint16(b[26:], uint16(e.Cluster))
	le.PutUint32(b[28:], uint32(e.Size))
	return b
}

// stamp is a date and a time as FAT has them, from 1980 to 2107 and in steps of two seconds.
func stamp(t time.Time) (day, second uint16) {
	t = t.UTC()
	if t.Year() < 1980 || t.Year() > 2107 {
		return 1<<5 | 1, 0
	}
	return uint16((t.Year()-1980)<<9 | int(t.Month())<<5 | t.Day()), uint16(t.Hour()<<11 | t.Minute()<<5 | t.Second()/2)
}
