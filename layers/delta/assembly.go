// SPDX-License-Identifier: Apache-2.0

// Package delta makes an image of chunks: of those that other images have, and of
// those that only its registry has.
//
// An image's chunk index is made with it ([WriteIndex]) and lists its chunks by
// sha256. Chunks are cut by content, so an unchanged file has the same ones wherever
// it lies. Who has an older image cuts it by the same rule and finds by the sums
// what the new one shares with it; nothing has to be said about the older one, and
// no pair of versions is special. [Assembly] keeps the account of what is there.
//
// Every chunk is compared with its sum before it is written. The index itself may
// be wrong all the same: whether the whole is as signed, the caller decides.
//
// The package knows no registry and no store: it reads and writes what it is given.
// It imports the standard library. The builder makes indexes, nodes use them.
package delta

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"

	"github.com/caisson-os/caisson/internal/mediatype"
)

// ErrWrong is returned where bytes are not the chunk that belongs there.
var ErrWrong = errors.New("not the chunk of the index")

// ErrWrite is returned where a chunk cannot be written.
var ErrWrite = errors.New("write a chunk")

// File is where an image is assembled.
type File interface {
	io.ReaderAt
	io.WriterAt
}

// Span is bytes of an image, To not among them.
type Span struct{ From, To int64 }

// Assembly is an image of which some chunks are there.
type Assembly struct {
	file    File
	chunks  []Chunk
	offsets []int64 // of each chunk
	sorted  []int32 // chunks by their sums
	there   []bool
	taken   []bool // of sorted, at the first of equal chunks: put has seen to all of them
	missing int64
}

// Assemble begins an image of size bytes in file, by its index. What the file holds
// counts for nothing yet; see [Assembly.Resume].
func Assemble(file File, index []byte, size int64) (*Assembly, error) {
	chunks, err := ParseIndex(index)
	if err != nil {
		return nil, err
	}
	a := &Assembly{file: file, chunks: chunks, offsets: make([]int64, len(chunks)), sorted: make([]int32, len(chunks)),
		there: make([]bool, len(chunks)), taken: make([]bool, len(chunks)), missing: size}
	at := int64(0)
	for i, c := range chunks {
		a.offsets[i], a.sorted[i] = at, int32(i)
		at += int64(c.Size)
	}
	if at != size {
		return nil, fmt.Errorf("the chunk index covers %d bytes, the image has %d", at, size)
	}
	slices.SortFunc(a.sorted, func(i, j int32) int { return bytes.Compare(chunks[i].Sum[:], chunks[j].Sum[:]) })
	return a, nil
}

// Missing is how many bytes are not there.
func (a *Assembly) Missing() int64 { return a.missing }

// Whole is how many bytes from the start are there without a gap.
func (a *Assembly) Whole() int64 {
	if i := slices.Index(a.there, false); i >= 0 {
		return a.offsets[i]
	}
	if last := len(a.chunks) - 1; last >= 0 {
		return a.offsets[last] + int64(a.chunks[last].Size)
	}
	return 0
}

// Resume counts what the file holds already, at its place. A cut may have left
// anything: what is right proves itself.
func (a *Assembly) Resume(ctx context.Context) error {
	buf := make([]byte, chunkMax)
	for i, c := range a.chunks {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := a.file.ReadAt(buf[:c.Size], a.offsets[i])
		if err != nil && err != io.EOF {
			return err
		}
		if n < int(c.Size) {
			return nil // the file ends here
		}
		if sha256.Sum256(buf[:n]) == c.Sum {
			a.count(i)
		}
	}
	return nil
}

// Take copies the chunks of another image that this one has, too.
func (a *Assembly) Take(ctx context.Context, other io.Reader) error {
	return cut(other, func(chunk []byte) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return a.put(sha256.Sum256(chunk), chunk)
	})
}

// put writes a chunk wherever it belongs.
func (a *Assembly) put(sum [sha256.Size]byte, chunk []byte) error {
	first := sort.Search(len(a.sorted), func(n int) bool { return bytes.Compare(a.chunks[a.sorted[n]].Sum[:], sum[:]) >= 0 })
	if first == len(a.sorted) || a.chunks[a.sorted[first]].Sum != sum || a.taken[first] {
		return nil
	}
	for _, i := range a.sorted[first:] {
		if a.chunks[i].Sum != sum {
			break
		}
		if a.there[i] || int(a.chunks[i].Size) != len(chunk) {
			continue
		}
		if _, err := a.file.WriteAt(chunk, a.offsets[i]); err != nil {
			return fmt.Errorf("%w: %w", ErrWrite, err)
		}
		a.count(int(i))
	}
	a.taken[first] = true
	return nil
}

func (a *Assembly) count(i int) {
	if !a.there[i] {
		a.there[i] = true
		a.missing -= int64(a.chunks[i].Size)
	}
}

// Gaps returns the first spans that are not there, at most limit of them. Each
// begins and ends with a chunk.
func (a *Assembly) Gaps(limit int) []Span {
	var spans []Span
	for i, c := range a.chunks {
		if a.there[i] {
			continue
		}
		from := a.offsets[i]
		if last := len(spans) - 1; last >= 0 && spans[last].To == from {
			spans[last].To += int64(c.Size)
			continue
		}
		if len(spans) == limit {
			break
		}
		spans = append(spans, Span{from, from + int64(c.Size)})
	}
	return spans
}

// Fill reads the bytes of spans, as [Assembly.Gaps] gave them, one after another.
// What it wrote until it met an error counts.
func (a *Assembly) Fill(body io.Reader, spans []Span) error {
	buf := make([]byte, chunkMax)
	for _, s := range spans {
		first := sort.Search(len(a.offsets), func(i int) bool { return a.offsets[i] >= s.From })
		for i := first; i < len(a.chunks) && a.offsets[i] < s.To; i++ {
			chunk := buf[:a.chunks[i].Size]
			if _, err := io.ReadFull(body, chunk); err != nil {
				return err
			}
			sum := sha256.Sum256(chunk)
			if sum != a.chunks[i].Sum {
				return fmt.Errorf("%d bytes at %d: %w", len(chunk), a.offsets[i], ErrWrong)
			}
			if err := a.put(sum, chunk); err != nil {
				return err
			}
		}
	}
	return nil
}

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
