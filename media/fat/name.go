// SPDX-License-Identifier: Apache-2.0

package fat

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"strings"
	"unicode/utf16"
)

// names are those that firmware and kernels read alike; short ones need no long record.
var (
	names = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z._+-]{0,199}$`)
	plain = regexp.MustCompile(`^[0-9A-Z_-]{1,8}(\.[0-9A-Z_-]{1,3})?$`)
	other = regexp.MustCompile(`[^0-9A-Z_-]`)
)

func checkName(name string) error {
	if !names.MatchString(name) || strings.HasSuffix(name, ".") {
		return fmt.Errorf("%.80q cannot be a name of a file that firmware reads", name)
	}
	return nil
}

// shorten returns the name of 11 characters that no other entry of the folder has.
func (d *folder) shorten(name string) string {
	stem, extension := name, ""
	if dot := strings.LastIndexByte(name, '.'); dot > 0 {
		stem, extension = name[:dot], name[dot+1:]
	}
	if plain.MatchString(name) {
		return padded(stem, 8) + padded(extension, 3)
	}
	stem = other.ReplaceAllString(strings.ToUpper(stem), "")
	extension = other.ReplaceAllString(strings.ToUpper(extension), "")
	for n := 1; ; n++ {
		tail := fmt.Sprintf("~%d", n)
		short := padded(stem[:min(len(stem), 8-len(tail))]+tail, 8) + padded(extension, 3)
		if !d.has(short) {
			return short
		}
	}
}

func (d *folder) has(short string) bool {
	for _, e := range d.entries {
		if e.short == short {
			return true
		}
	}
	return false
}

// perRecord is how many characters of a long name one record has.
const perRecord = 13

// slots counts the records of an entry.
func (e *entry) slots() int {
	if plain.MatchString(e.name) {
		return 1
	}
	return 1 + (len(e.name)+perRecord-1)/perRecord
}

// long are the records with an entry's long name, the last part first; none for a name
// that is short.
func (e *entry) long() []byte {
	parts := e.slots() - 1
	if parts == 0 {
		return nil
	}
	units := utf16.Encode([]rune(e.name))
	if len(units) < parts*perRecord {
		units = append(units, 0)
	}
	for len(units) < parts*perRecord {
		units = append(units, 0xffff)
	}
	sum := byte(0)
	for _, c := range []byte(e.short) {
		sum = sum>>1 | sum<<7
		sum += c
	}
	var all []byte
	for part := parts; part > 0; part-- {
		b := make([]byte, slot)
		b[0] = byte(part)
		if part == parts {
			b[0] |= 0x40
		}
		b[11], b[13] = isLong, sum
		for i, unit := range units[(part-1)*perRecord : part*perRecord] {
			binary.LittleEndian.PutUint16(b[longAt[i]:], unit)
		}
		all = append(all, b...)
	}
	return all
}

// longAt are the places of a record's characters.
var longAt = [perRecord]int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30}

// padded fills a name up with blanks.
func padded(name string, to int) string {
	name = name[:min(len(name), to)]
	return name + strings.Repeat(" ", to-len(name))
}
