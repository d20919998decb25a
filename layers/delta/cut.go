// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/caisson-os/caisson/internal/mediatype"
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

// MediaType is the media type of a chunk index.
const MediaType = mediatype.Chunks

// MaxIndex is the cap of an index that a node reads, in bytes: that of an image of
// about 1.9 GB.
const MaxIndex = 4 << 20

// magic begins a chunk index. After it comes one record a chunk, in the
// order of the image: its length (4 bytes, little endian) and its sha256 (32
// bytes). Offsets are the sum of the lengths before, so chunks cannot overlap.
const magic = "caisson-chunks1\n"

const record = 4 + sha256.Size

// Chunk is one record of a chunk index.
type Chunk struct {
	Size uint32
	Sum  [sha256.Size]byte
}

// WriteIndex writes the chunk index of image to w.
func WriteIndex(w io.Writer, image io.Reader) error {
	out := bufio.NewWriter(w)
	_, _ = out.WriteString(magic) // Flush returns the error
	err := cut(image, func(chunk []byte) error {
		sum := sha256.Sum256(chunk)
		_, _ = out.Write(binary.LittleEndian.AppendUint32(nil, uint32(len(chunk)))) // Flush returns the error
		_, _ = out.Write(sum[:])                                                    // Flush returns the error
		return nil
	})
	return errors.Join(err, out.Flush())
}

// ParseIndex reads a chunk index. Whether it is that of an image is another
// question.
func ParseIndex(data []byte) ([]Chunk, error) {
	if len(data) < len(magic) || string(data[:len(magic)]) != magic {
		return nil, errors.New("not a chunk index")
	}
	data = data[len(magic):]
	if len(data)%record != 0 {
		return nil, errors.New("the chunk index is cut short")
	}
	chunks := make([]Chunk, 0, len(data)/record)
	for ; len(data) > 0; data = data[record:] {
		c := Chunk{Size: binary.LittleEndian.Uint32(data), Sum: [sha256.Size]byte(data[4:record])}
		if c.Size == 0 || c.Size > chunkMax {
			return nil, fmt.Errorf("the chunk index has a chunk of %d bytes", c.Size)
		}
		chunks = append(chunks, c)
	}
	return chunks, nil
}
