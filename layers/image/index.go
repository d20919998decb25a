// SPDX-License-Identifier: Apache-2.0

package image

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"io"
)

// IndexMagic begins a chunk index. After it comes one record a chunk, in the
// order of the image: its length (4 bytes, little endian) and its sha256 (32
// bytes). Offsets are the sum of the lengths before.
const IndexMagic = "caisson-chunks1\n"

// Chunks are cut where the bytes say so: 16 KiB on average.
const (
	chunkMin = 4 << 10
	chunkAvg = 16 << 10
	chunkMax = 64 << 10
)

// gear maps each byte to a number that never changes: the first eight bytes of
// the sha256 of "caisson gear" and the byte.
var gear = func() (table [256]uint64) {
	for i := range table {
		sum := sha256.Sum256([]byte{'c', 'a', 'i', 's', 's', 'o', 'n', ' ', 'g', 'e', 'a', 'r', byte(i)})
		table[i] = binary.BigEndian.Uint64(sum[:])
	}
	return table
}()

// Index writes the chunk index of image to w.
func Index(w io.Writer, image io.Reader) error {
	out := bufio.NewWriter(w)
	_, _ = out.WriteString(IndexMagic) // Flush returns the error
	in := bufio.NewReaderSize(image, 1<<20)
	for {
		window, err := in.Peek(chunkMax)
		if len(window) == 0 {
			if err == io.EOF {
				return out.Flush()
			}
			return err
		}
		if err != nil && err != io.EOF {
			return err
		}
		n := cut(window)
		var length [4]byte
		binary.LittleEndian.PutUint32(length[:], uint32(n))
		sum := sha256.Sum256(window[:n])
		_, _ = out.Write(length[:]) // Flush returns the error
		_, _ = out.Write(sum[:])    // Flush returns the error
		if _, err := in.Discard(n); err != nil {
			return err
		}
	}
}

// cut returns the length of the chunk that b begins with. The top bits of the
// gear hash depend on the last 64 bytes, so a boundary moves with its content.
func cut(b []byte) int {
	if len(b) <= chunkMin {
		return len(b)
	}
	var h uint64
	for _, c := range b[chunkMin-64 : chunkMin] {
		h = h<<1 + gear[c]
	}
	for i, c := range b[chunkMin:] {
		h = h<<1 + gear[c]
		if h>>(64-14) == 0 {
			return chunkMin + i + 1
		}
	}
	return len(b)
}
