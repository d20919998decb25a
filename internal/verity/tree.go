// SPDX-License-Identifier: Apache-2.0

// Package verity makes the hash tree by which the kernel checks an image block by
// block while it is read: format 1 of dm-verity, sha256, blocks of 4096 bytes, without
// a header, see the kernel's admin-guide/device-mapper/verity.rst and veritysetup(8).
//
// The tree is not a part of an image. A holder of the image can make it, always the same
// one, so what is signed and fetched is its [Root] alone; the salt is the image's own
// sha256. The builder makes roots, nodes trees.
//
// The package imports the standard library and no more.
package verity

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
)

// Block is the size of the blocks that are hashed, of the image and of the tree.
const Block = 4096

const (
	perBlock = Block / sha256.Size // hashes in a block
	batch    = 1024                // blocks of an image that are read at once
)

// Hash is a sha256: a root, or a salt.
type Hash [sha256.Size]byte

// Parse reads a hash from its 64 hex digits, lower case.
func Parse(digits string) (h Hash, err error) {
	raw, err := hex.DecodeString(digits)
	if err != nil || len(raw) != len(h) || hex.EncodeToString(raw) != digits {
		return h, fmt.Errorf("%.80q is not 64 hex digits", digits)
	}
	return Hash(raw), nil
}

// String returns the 64 hex digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// ErrSize is returned for an image that is not made of blocks.
var ErrSize = errors.New("not a multiple of 4096 bytes")

// counts returns how many blocks each level of the tree has, lowest first; an image of
// one block has no tree.
func counts(size int64) (levels []int64) {
	for n := size / Block; n > 1; levels = append(levels, n) {
		n = (n + perBlock - 1) / perBlock
	}
	return levels
}

// Size is how many bytes the tree of an image of size bytes has.
func Size(size int64) (total int64) {
	for _, n := range counts(size) {
		total += n * Block
	}
	return total
}

// Root returns the root of an image without keeping its tree.
func Root(image io.Reader, size int64, salt Hash) (Hash, error) {
	return Write(nowhere{}, image, size, salt)
}

// Write writes the tree of an image and returns its root. It holds a few megabytes,
// whatever the size, and uses every processor.
func Write(tree io.WriterAt, image io.Reader, size int64, salt Hash) (Hash, error) {
	if size <= 0 || size%Block != 0 {
		return Hash{}, fmt.Errorf("%d bytes: %w", size, ErrSize)
	}
	w := writer{tree: tree, salt: salt}
	at := Size(size)
	for _, n := range counts(size) { // the topmost is first in the file
		at -= n * Block
		w.levels = append(w.levels, level{at: at})
	}
	data, sums := make([]byte, min(size, batch*Block)), make([]Hash, batch)
	for from := int64(0); from < size; from += int64(len(data)) {
		data = data[:min(size-from, int64(len(data)))]
		if n, err := io.ReadFull(image, data); err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return Hash{}, fmt.Errorf("read image at %d: %w", from+int64(n), err)
		}
		blocks := sums[:len(data)/Block]
		hashAll(blocks, data, salt)
		for _, sum := range blocks {
			if err := w.add(0, sum); err != nil {
				return Hash{}, err
			}
		}
	}
	for i := range w.levels {
		if w.levels[i].filled > 0 {
			if err := w.end(i); err != nil {
				return Hash{}, err
			}
		}
	}
	return w.root, nil
}

// hashAll hashes the blocks of data into sums, on every processor.
func hashAll(sums []Hash, data []byte, salt Hash) {
	share := (len(sums) + runtime.GOMAXPROCS(0) - 1) / runtime.GOMAXPROCS(0)
	var all sync.WaitGroup
	for from := 0; from < len(sums); from += share {
		all.Go(func() {
			for i := from; i < min(from+share, len(sums)); i++ {
				sums[i] = hashBlock(data[i*Block:(i+1)*Block], salt)
			}
		})
	}
	all.Wait()
}

func hashBlock(block []byte, salt Hash) (sum Hash) {
	h := sha256.New()
	h.Write(salt[:]) // it never fails, nor does the next
	h.Write(block)
	h.Sum(sum[:0])
	return sum
}

// writer fills one block of each level at a time.
type writer struct {
	tree   io.WriterAt
	salt   Hash
	levels []level // lowest first
	root   Hash
}

type level struct {
	at     int64 // where its next block goes
	block  [Block]byte
	filled int
}

// add puts a hash into a level; what is above the topmost one is the root.
func (w *writer) add(i int, sum Hash) error {
	if i == len(w.levels) {
		w.root = sum
		return nil
	}
	l := &w.levels[i]
	l.filled += copy(l.block[l.filled:], sum[:])
	if l.filled < Block {
		return nil
	}
	return w.end(i)
}

// end writes a level's block, with zeros after what it has.
func (w *writer) end(i int) error {
	l := &w.levels[i]
	clear(l.block[l.filled:])
	if _, err := w.tree.WriteAt(l.block[:], l.at); err != nil {
		return fmt.Errorf("write hash tree: %w", err)
	}
	l.at, l.filled = l.at+Block, 0
	return w.add(i+1, hashBlock(l.block[:], w.salt))
}

type nowhere struct{}

func (nowhere) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
