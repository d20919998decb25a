// SPDX-License-Identifier: Apache-2.0

package efivar

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"unicode/utf16"
)

// Dir is where Linux shows the variables, see efivarfs: a file each, whose first 4 bytes are attributes.
const Dir = "/sys/firmware/efi/efivars"

// SecureBoot is 1 where firmware verifies what it starts.
const SecureBoot Variable = "SecureBoot"

// File is the variable's name in Linux' efivarfs.
func (v Variable) File() string {
	if v == Allowed || v == Forbidden {
		return string(v) + "-d719b2cb-3d3a-4596-a3bc-dad00e67656f"
	}
	return string(v) + "-8be4df61-93ca-11d2-aa0d-00e098032b8c"
}

// inStore is how a store of authenticated variables begins, in the flash of firmware by EDK II.
var inStore = guid("aaf32c78-947b-439a-a180-2e144ec37792")

// Where a store has its size, and where its first variable begins.
const (
	sizeAt  = 16
	firstAt = 28
)

// Fill returns a flash image of OVMF or AAVMF with these variables in place of all that its store
// holds. Firmware that finds [Platform] there verifies what it starts.
func Fill(image []byte, variables map[Variable][]byte) ([]byte, error) {
	at := bytes.Index(image, inStore[:])
	if at < 0 || len(image)-at < firstAt {
		return nil, errors.New("no variables of firmware: it has no store of them")
	}
	image = bytes.Clone(image)
	size := binary.LittleEndian.Uint32(image[at+sizeAt:])
	if size < firstAt || uint64(size) > uint64(len(image)-at) {
		return nil, errors.New("no variables of firmware: their store is damaged")
	}
	room := image[at+firstAt : at+int(size)]
	copy(room, bytes.Repeat([]byte{0xff}, len(room))) // as erased flash is
	for _, v := range slices.Sorted(maps.Keys(variables)) {
		written := v.stored(variables[v])
		if len(written) > len(room) {
			return nil, errors.New("variables of firmware: the store has no room for them")
		}
		room = room[copy(room, written):]
	}
	return image, nil
}

// stored is an AUTHENTICATED_VARIABLE_HEADER with what follows it, up to where the next one begins.
func (v Variable) stored(data []byte) []byte {
	le, vendor := binary.LittleEndian, v.vendor()
	var name []byte
	for _, unit := range utf16.Encode([]rune(string(v) + "\x00")) {
		name = le.AppendUint16(name, unit)
	}
	out := []byte{0xaa, 0x55, 0x3f, 0}         // begins, and is whole
	out = le.AppendUint32(out, replaces)       // attributes
	out = append(out, make([]byte, 8+16+4)...) // counter, time and key of the last update: there was none
	out = le.AppendUint32(out, uint32(len(name)))
	out = le.AppendUint32(out, uint32(len(data)))
	out = slices.Concat(out, vendor[:], name, data)
	return append(out, bytes.Repeat([]byte{0xff}, -len(out)&3)...)
}
