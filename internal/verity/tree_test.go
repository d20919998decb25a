// SPDX-License-Identifier: Apache-2.0

package verity

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// define is the definition, without care for memory: level by level, from the image up.
func define(data []byte, salt Hash) (tree []byte, root Hash) {
	for {
		var level []byte
		for at := 0; at < len(data); at += Block {
			sum := sha256.Sum256(append(bytes.Clone(salt[:]), data[at:at+Block]...))
			level = append(level, sum[:]...)
		}
		if len(level) == sha256.Size {
			return tree, Hash(level)
		}
		for len(level)%Block != 0 {
			level = append(level, 0)
		}
		tree = append(bytes.Clone(level), tree...)
		data = level
	}
}

// file is a tree in memory.
type file struct{ data []byte }

func (f *file) WriteAt(p []byte, at int64) (int, error) {
	if need := int(at) + len(p); need > len(f.data) {
		f.data = append(f.data, make([]byte, need-len(f.data))...)
	}
	return copy(f.data[at:], p), nil
}

// edges are numbers of blocks at which a level begins or ends.
var edges = []int{1, 2, 127, 128, 129, batch - 1, batch, batch + 1, 128 * 128, 128*128 + 1, 129 * 128}

func random(blocks int) []byte {
	image := make([]byte, blocks*Block)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(image) // it never fails
	return image
}

// TestWrite: the tree is as defined, at each edge.
func TestWrite(t *testing.T) {
	image, salt := random(129*128), Hash(sha256.Sum256([]byte("salt")))
	for _, blocks := range edges {
		data := image[:blocks*Block]
		size := int64(len(data))
		var got file
		root, err := Write(&got, bytes.NewReader(data), size, salt)
		if err != nil {
			t.Fatal(err)
		}
		want, wantRoot := define(data, salt)
		if root != wantRoot || !bytes.Equal(got.data, want) || Size(size) != int64(len(want)) {
			t.Errorf("%d blocks: a tree of %d bytes, size %d, want %d; root %s, want %s", blocks, len(got.data), Size(size), len(want), root, wantRoot)
		}
		if alone, err := Root(bytes.NewReader(data), size, salt); err != nil || alone != wantRoot {
			t.Errorf("%d blocks: root alone %s, %v", blocks, alone, err)
		}
	}
}

// TestWriteRefuses: what is not made of blocks, ends early, or cannot be written has no root.
func TestWriteRefuses(t *testing.T) {
	image := random(200)
	for _, size := range []int64{0, -Block, 1, Block + 1} {
		if _, err := Root(bytes.NewReader(image), size, Hash{}); !errors.Is(err, ErrSize) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := Root(bytes.NewReader(image[:len(image)-1]), int64(len(image)), Hash{}); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("an image that ends early: %v", err)
	}
	if _, err := Write(full{}, bytes.NewReader(image), int64(len(image)), Hash{}); !errors.Is(err, errFull) {
		t.Errorf("a disk that is full: %v", err)
	}
}

var errFull = errors.New("full")

type full struct{}

func (full) WriteAt([]byte, int64) (int, error) { return 0, errFull }

// TestWriteHoldsLittle: memory does not grow with the image.
func TestWriteHoldsLittle(t *testing.T) {
	allocated := func(blocks int64) uint64 {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := Root(zeros{}, blocks*Block, Hash{}); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	small, large := allocated(batch), allocated(32*batch)
	if large > 2*small+1<<20 {
		t.Errorf("32 times the image takes %d bytes, once %d", large, small)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }

// TestVeritysetup: cryptsetup's own tool makes the same tree and the same root.
func TestVeritysetup(t *testing.T) {
	require.Tool(t, "veritysetup")
	image, salt := random(129*128), Hash(sha256.Sum256([]byte("another")))
	dir := t.TempDir()
	for _, blocks := range edges {
		data := image[:blocks*Block]
		name, tree := filepath.Join(dir, "image"), filepath.Join(dir, "tree")
		if err := errors.Join(os.WriteFile(name, data, 0o600), os.WriteFile(tree, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command("veritysetup", "format", "--no-superblock", "--format=1", "--hash=sha256", "--data-block-size=4096",
			"--hash-block-size=4096", "--salt="+salt.String(), name, tree).CombinedOutput()
		if err != nil {
			t.Fatalf("veritysetup: %v\n%s", err, out)
		}
		want, err := os.ReadFile(tree)
		if err != nil {
			t.Fatal(err)
		}
		var got file
		root, err := Write(&got, bytes.NewReader(data), int64(len(data)), salt)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^Root hash:\s+([0-9a-f]{64})$`).FindSubmatch(out)
		if m == nil || string(m[1]) != root.String() || !bytes.Equal(got.data, want) {
			t.Errorf("%d blocks: root %s and a tree of %d bytes, veritysetup makes %d bytes and says\n%s", blocks, root, len(got.data), len(want), out)
		}
	}
}

// FuzzWrite: any image has the tree that the definition says, and another one when any
// byte of it is another.
func FuzzWrite(f *testing.F) {
	f.Add([]byte("image"), uint16(3), []byte("salt"), uint32(5000))
	f.Add([]byte{}, uint16(300), []byte{}, uint32(0))
	f.Fuzz(func(t *testing.T, text []byte, blocks uint16, salted []byte, flip uint32) {
		data := bytes.Repeat(append(text, 0), (int(blocks)%700+1)*Block/(len(text)+1)+1)
		data = data[:(int(blocks)%700+1)*Block]
		salt := Hash(sha256.Sum256(salted))
		var got file
		root, err := Write(&got, bytes.NewReader(data), int64(len(data)), salt)
		if err != nil {
			t.Fatal(err)
		}
		if want, wantRoot := define(data, salt); root != wantRoot || !bytes.Equal(got.data, want) {
			t.Errorf("%d bytes: root %s, want %s", len(data), root, wantRoot)
		}
		data[int(flip)%len(data)] ^= 1
		if other, err := Root(bytes.NewReader(data), int64(len(data)), salt); err != nil || other == root {
			t.Errorf("a byte is another, the root is %s: %v", other, err)
		}
	})
}

// TestParse: a root has one spelling.
func TestParse(t *testing.T) {
	digits := strings.Repeat("0a", 32)
	if h, err := Parse(digits); err != nil || h.String() != digits {
		t.Errorf("%s, %v", h, err)
	}
	for _, wrong := range []string{"", digits[2:], digits + "00", strings.ToUpper(digits), strings.Repeat("0g", 32)} {
		if h, err := Parse(wrong); err == nil {
			t.Errorf("%q is %s", wrong, h)
		}
	}
}

// BenchmarkWrite compares the tree with one hash over the whole.
func BenchmarkWrite(b *testing.B) {
	image := random(64 << 8)
	b.Run("tree", func(b *testing.B) {
		b.SetBytes(int64(len(image)))
		for b.Loop() {
			if _, err := Root(bytes.NewReader(image), int64(len(image)), Hash{}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("sha256", func(b *testing.B) {
		b.SetBytes(int64(len(image)))
		for b.Loop() {
			sha256.Sum256(image)
		}
	})
}
