// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"io"
)

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

// cut calls each with the chunks of r, in order. The bytes are each's until it
// returns.
func cut(r io.Reader, each func(chunk []byte) error) error {
	in := bufio.NewReaderSize(r, 1<<20)
	for {
		window, err := in.Peek(chunkMax)
		if len(window) == 0 {
			if err == io.EOF {
				return nil
			}
			return err
		}
		if err != nil && err != io.EOF {
			return err
		}
		n := boundary(window)
		if err := each(window[:n]); err != nil {
			return err
		}
		if _, err := in.Discard(n); err != nil {
			return err
		}
	}
}

// boundary returns the length of the chunk that b begins with. The top bits of the
// gear hash depend on the last 64 bytes, so a boundary moves with its content.
func boundary(b []byte) int {
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
