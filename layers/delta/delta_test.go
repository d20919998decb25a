// SPDX-License-Identifier: Apache-2.0

package delta

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/caisson-os/caisson/internal/digest"
)

func index(t testing.TB, data []byte) []Chunk {
	t.Helper()
	var b bytes.Buffer
	if err := WriteIndex(&b, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	chunks, err := ParseIndex(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	return chunks
}

func noise(n int, seed uint64) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed)})
	data := make([]byte, n)
	_, _ = r.Read(data) // it never fails
	return data
}

// Chunks cover the image, have the promised sizes, and move with their content.
func TestIndex(t *testing.T) {
	data := noise(4<<20, 1)
	chunks := index(t, data)
	at := 0
	for i, c := range chunks {
		if sum := sha256.Sum256(data[at : at+int(c.Size)]); sum != c.Sum {
			t.Fatalf("chunk %d at %d has another sum", i, at)
		}
		if c.Size > chunkMax || c.Size <= chunkMin && i < len(chunks)-1 {
			t.Errorf("chunk %d has %d bytes", i, c.Size)
		}
		at += int(c.Size)
	}
	if at != len(data) {
		t.Errorf("chunks cover %d of %d bytes", at, len(data))
	}
	if avg := len(data) / len(chunks); avg < chunkAvg/2 || avg > chunkAvg*2 {
		t.Errorf("chunks have %d bytes on average, want about %d", avg, chunkAvg)
	}
	had := map[[32]byte]bool{}
	for _, c := range chunks {
		had[c.Sum] = true
	}
	moved := append(append(append([]byte{}, data[:1<<20]...), noise(777, 2)...), data[1<<20:]...)
	fresh := 0
	for _, c := range index(t, moved) {
		if !had[c.Sum] {
			fresh += int(c.Size)
		}
	}
	if fresh > 3*chunkMax {
		t.Errorf("777 bytes in the middle made %d bytes new", fresh)
	}
	if got := index(t, nil); len(got) != 0 {
		t.Errorf("nothing has %d chunks", len(got))
	}
}

func FuzzParseIndex(f *testing.F) {
	var b bytes.Buffer
	if err := WriteIndex(&b, bytes.NewReader(noise(100<<10, 3))); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, data []byte) {
		chunks, err := ParseIndex(data)
		if err != nil {
			return
		}
		again := []byte(magic)
		for _, c := range chunks {
			again = append(binary.LittleEndian.AppendUint32(again, c.Size), c.Sum[:]...)
		}
		if !bytes.Equal(again, data) {
			t.Error("what was read is not what was written")
		}
	})
}

// memory is a file in memory.
type memory struct{ data []byte }

func (m *memory) ReadAt(b []byte, at int64) (int, error) {
	return bytes.NewReader(m.data).ReadAt(b, at)
}

func (m *memory) WriteAt(b []byte, at int64) (int, error) {
	if more := int(at) + len(b) - len(m.data); more > 0 {
		m.data = append(m.data, make([]byte, more)...)
	}
	return copy(m.data[at:], b), nil
}

// assemble makes newer from older, from what file holds, and from the spans that it
// lacks. It returns how many bytes those had.
func assemble(t *testing.T, file *memory, older, newer []byte, limit int) (fetched int64) {
	t.Helper()
	var index bytes.Buffer
	if err := WriteIndex(&index, bytes.NewReader(newer)); err != nil {
		t.Fatal(err)
	}
	a, err := Assemble(file, index.Bytes(), int64(len(newer)))
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.Take(t.Context(), bytes.NewReader(older)); err != nil {
		t.Fatal(err)
	}
	for a.Missing() > 0 {
		missing := a.Missing()
		for _, s := range a.Gaps(limit) {
			if s.From < a.Whole() {
				t.Fatalf("%d to %d is there", s.From, s.To)
			}
			if err := a.Fill(bytes.NewReader(newer[s.From:s.To]), []Span{s}); err != nil {
				t.Fatal(err)
			}
			fetched += s.To - s.From
		}
		if a.Missing() == missing {
			t.Fatalf("%d bytes are never there", missing)
		}
	}
	if a.Whole() != int64(len(newer)) || !bytes.Equal(file.data[:len(newer)], newer) {
		t.Fatal("what was assembled is something else")
	}
	return fetched
}

func TestAssemble(t *testing.T) {
	older := noise(1<<20, 4)
	inserted := append(append(append([]byte{}, older[:300_000]...), noise(9_999, 5)...), older[300_000:]...)
	for what, c := range map[string]struct {
		file         memory
		older, newer []byte
		most         int64
	}{
		"nothing":             {memory{}, nil, nil, 0},
		"from nothing":        {memory{}, nil, older, 1 << 20},
		"the same":            {memory{}, older, older, 0},
		"something in it":     {memory{}, older, inserted, 9_999 + 3*chunkMax},
		"something less":      {memory{}, inserted, older, 3 * chunkMax},
		"cut off":             {memory{bytes.Clone(older[:700_000])}, nil, older, 1<<20 - 700_000 + chunkMax},
		"torn":                {memory{append(make([]byte, 700_000), older[700_000:]...)}, nil, older, 700_000 + chunkMax},
		"something before":    {memory{noise(2<<20, 6)}, nil, older, 1 << 20},
		"the same many times": {memory{}, nil, make([]byte, 1<<20), chunkMax + 1<<20},
	} {
		t.Run(what, func(t *testing.T) {
			if fetched := assemble(t, &c.file, c.older, c.newer, 3); fetched > c.most {
				t.Errorf("%d bytes were fetched, at most %d are new", fetched, c.most)
			}
		})
	}
}

// FuzzAssemble makes one content from another one, whatever both are.
func FuzzAssemble(f *testing.F) {
	f.Add([]byte("file"), []byte("older"), []byte("newer"), uint16(200), uint16(1))
	f.Add([]byte{}, []byte("0123456789abcdef"), []byte("0123456789abcdef"), uint16(9000), uint16(7))
	f.Fuzz(func(t *testing.T, file, older, newer []byte, times, limit uint16) {
		if len(older)+len(newer) > 64 {
			return
		}
		assemble(t, &memory{file}, bytes.Repeat(older, int(times)), append(bytes.Repeat(newer, int(times)), older...), int(limit%100)+1)
	})
}

// FuzzHostileIndex gives any index any content: what is counted as there has the
// sums of the index.
func FuzzHostileIndex(f *testing.F) {
	var b bytes.Buffer
	data := noise(100<<10, 3)
	if err := WriteIndex(&b, bytes.NewReader(data)); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes(), data, int64(len(data)))
	f.Add(b.Bytes(), data[1:], int64(len(data)))
	f.Add([]byte(magic), []byte{}, int64(0))
	f.Fuzz(func(t *testing.T, index, body []byte, size int64) {
		file := &memory{}
		a, err := Assemble(file, index, size)
		if err != nil {
			return
		}
		filled := a.Fill(bytes.NewReader(body), a.Gaps(1000))
		if filled == nil && len(a.Gaps(1000)) == 0 && a.Missing() != 0 {
			t.Error("nothing is left to fetch, and not all is there")
		}
		for i, c := range a.chunks {
			if a.there[i] && sha256.Sum256(file.data[a.offsets[i]:][:c.Size]) != c.Sum {
				t.Errorf("chunk %d is counted and something else", i)
			}
		}
	})
}

func BenchmarkIndex(b *testing.B) {
	data := noise(16<<20, 1)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		index(b, data)
	}
}

// TestGolden: an image is cut as 0.9.0 did, else no chunk of an older image would be had.
func TestGolden(t *testing.T) {
	var image []byte
	for i := range uint64(1 << 15) { // a MiB that does not repeat
		sum := sha256.Sum256(binary.LittleEndian.AppendUint64(nil, i))
		image = append(image, sum[:]...)
	}
	var index bytes.Buffer
	if err := WriteIndex(&index, bytes.NewReader(image)); err != nil {
		t.Fatal(err)
	}
	const want = "sha256:8e2cd502fad88dab07fdfd75f4a3c9e7d09cd030e0d8be1d8233f7ac6ddf6331"
	if got := digest.Of(index.Bytes()); got != want {
		t.Errorf("the index is %s, want %s", got, want)
	}
}
