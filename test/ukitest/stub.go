// SPDX-License-Identifier: Apache-2.0

// Package ukitest makes programs for UEFI that do nothing, for tests of what is built on
// them. Only tests import it.
package ukitest

import (
	"debug/pe"
	"encoding/binary"
)

// Stub is a program for amd64 with one section, and room for a number of others.
func Stub(room int) []byte {
	const (
		at, optional  = 0x40, 240
		header, entry = 24, 40
		align         = 0x200
	)
	size := (at + header + optional + entry*(1+room) + align - 1) / align * align
	b := make([]byte, size+align)
	le := binary.LittleEndian
	copy(b, "MZ")
	le.PutUint32(b[0x3c:], at)
	copy(b[at:], "PE\x00\x00")
	le.PutUint16(b[at+4:], pe.IMAGE_FILE_MACHINE_AMD64)
	le.PutUint16(b[at+6:], 1)
	le.PutUint16(b[at+20:], optional)
	o := b[at+header:]
	le.PutUint16(o, 0x20b)
	le.PutUint32(o[32:], 0x1000) // alignment in memory
	le.PutUint32(o[36:], align)
	le.PutUint32(o[56:], 0x2000) // bytes of the image
	le.PutUint32(o[60:], uint32(size))
	le.PutUint32(o[108:], 16)
	s := b[at+header+optional:]
	copy(s, ".text")
	le.PutUint32(s[8:], 0x10)
	le.PutUint32(s[12:], 0x1000)
	le.PutUint32(s[16:], align)
	le.PutUint32(s[20:], uint32(size))
	return b
}
