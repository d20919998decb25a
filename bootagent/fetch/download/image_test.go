// SPDX-License-Identifier: Apache-2.0

package download

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/layers/delta"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec/refusal"
)

// noise returns bytes that are not like any others.
func noise(n int, seed byte) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // it never fails
	return data
}

// Two versions of an image: the newer one has something else at its start, in its
// middle and at its end.
var (
	older = noise(4<<20, 1)
	newer = bytes.Join([][]byte{noise(5000, 2), older[:1<<20], noise(70_000, 3), older[1<<20 : 3<<20], noise(40_000, 4), older[3<<20:], noise(100, 5)}, nil)
	fresh = int64(5000 + 70_000 + 40_000 + 100)
	image = oci.Describe(oci.TypeSquashfs, newer).Bare()
)

// around is how much may be fetched besides what is new: chunks that it cuts.
const around = 8 * 64 << 10

func indexOf(t testing.TB, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := delta.WriteIndex(&b, bytes.NewReader(data)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// withOlder returns a store that holds the older image.
func withOlder(t testing.TB) (*layers.Store, []string) {
	t.Helper()
	store, err := layers.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(oci.Digest(older), older); err != nil {
		t.Fatal(err)
	}
	return store, []string{oci.Digest(older)}
}

// served is a registry that counts what it sends of the newer image.
type served struct {
	http.HandlerFunc
	bytes, whole atomic.Int64
}

func (s *served) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Range") == "" {
		s.whole.Add(1)
	}
	s.HandlerFunc(&counting{w, s}, req)
}

type counting struct {
	http.ResponseWriter
	s *served
}

func (c *counting) Write(b []byte) (int, error) {
	n, err := c.ResponseWriter.Write(b)
	c.s.bytes.Add(int64(n))
	return n, err
}

func serveNewer(w http.ResponseWriter, req *http.Request) {
	http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(newer))
}

// fetcher returns a download from places that count what they send.
func fetcher(t testing.TB, store *layers.Store, places ...http.HandlerFunc) (Download, []*served) {
	t.Helper()
	var all []*served
	var hosts []string
	for _, h := range places {
		one := &served{HandlerFunc: h}
		s := httptest.NewServer(one)
		t.Cleanup(s.Close)
		all, hosts = append(all, one), append(hosts, strings.TrimPrefix(s.URL, "http://"))
	}
	ref, err := oci.ParseRef(hosts[0])
	if err != nil {
		t.Fatal(err)
	}
	src, err := pull.Open(ref, pull.Options{PlainHTTP: true, Mirrors: hosts[1:]})
	if err != nil {
		t.Fatal(err)
	}
	return Download{Source: src, Repo: oci.RepoLayer, Store: store, Pause: time.Millisecond}, all
}

// good fails the test unless the newer image is in the store.
func good(t testing.TB, store *layers.Store) {
	t.Helper()
	if err := store.Verify(image.Digest); err != nil {
		t.Error(err)
	}
}

func TestImageFetchesWhatIsNew(t *testing.T) {
	store, kept := withOlder(t)
	d, from := fetcher(t, store, serveNewer)
	var last int64
	tally, err := d.Image(t.Context(), image, indexOf(t, newer), kept, func(n int64) { last = n })
	if err != nil {
		t.Fatal(err)
	}
	good(t, store)
	if sent := from[0].bytes.Load(); sent != tally.Fetched || sent < fresh || sent > fresh+around || tally.Fetched+tally.Had != image.Size || tally.Whole != nil {
		t.Errorf("%+v, %d bytes sent; %d are new", tally, sent, fresh)
	}
	if last < tally.Had || last > image.Size {
		t.Errorf("progress ended at %d of %d", last, image.Size)
	}
	if tally, err := d.Image(t.Context(), image, nil, nil, nil); err != nil || tally.Fetched != 0 {
		t.Errorf("what is there: %+v, %v", tally, err)
	}
}

// weakLine is a source whose power is cut after some bytes of what it brings.
type weakLine struct {
	oci.Source
	cut   context.CancelFunc
	after int64
	came  *int64
}

func (l *weakLine) Ranges(ctx context.Context, repo string, d oci.Descriptor, spans []oci.Span) (io.ReadCloser, error) {
	body, err := l.Source.(oci.Ranger).Ranges(ctx, repo, d, spans)
	return &weakBody{body, l}, err
}

type weakBody struct {
	io.ReadCloser
	line *weakLine
}

func (b *weakBody) Read(p []byte) (int, error) {
	if b.line.after == 0 {
		b.line.cut()
		return 0, context.Canceled
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.line.after)])
	b.line.after -= int64(n)
	*b.line.came += int64(n)
	return n, err
}

// TestImageResumes cuts the power again and again, in the middle of a chunk: what was
// whole is not fetched again, however little came at a time.
func TestImageResumes(t *testing.T) {
	store, kept := withOlder(t)
	d, _ := fetcher(t, store, serveNewer)
	whole := d.Source
	const most = 64 << 10 // of a chunk
	cuts, came := 0, int64(0)
	for ; !store.Has(image.Digest, image.Size); cuts++ {
		if cuts == 100 {
			t.Fatal("it never ends")
		}
		ctx, stop := context.WithCancel(t.Context())
		d.Source = &weakLine{whole, stop, most + 1000, &came}
		if _, err := d.Image(ctx, image, indexOf(t, newer), kept, nil); err != nil && ctx.Err() == nil {
			t.Fatal(err)
		}
		stop()
		if cuts == 0 { // what lies on the disk may be torn
			f, err := os.OpenFile(store.Partial(image.Digest), os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.WriteAt(make([]byte, 100), 2<<20); err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	good(t, store)
	if cuts < 2 || came > fresh+around+int64(cuts)*most {
		t.Errorf("%d bytes came in %d attempts, %d are new", came, cuts, fresh)
	}
}

// TestImageIsFetchedWhole: whatever an index or a place does, the image comes as it
// was signed, and why it came whole is known.
func TestImageIsFetchedWhole(t *testing.T) {
	right := indexOf(t, newer)
	header := len(right) % 36
	edited := func(edit func([]byte) []byte) []byte { return edit(bytes.Clone(right)) }
	for what, c := range map[string]struct {
		index []byte
		place http.HandlerFunc
		why   string
	}{
		"index of another image":     {index: indexOf(t, older), why: "the chunk index covers"},
		"index that is not an index": {index: []byte("<html>"), why: "not a chunk index"},
		"index that is cut":          {index: right[:len(right)-1], why: "cut short"},
		"index that is too short":    {index: right[:len(right)-36], why: "the chunk index covers"},
		"index that is too long":     {index: append(bytes.Clone(right), right[header:header+36]...), why: "the chunk index covers"},
		"a chunk of no bytes":        {index: edited(func(b []byte) []byte { binary.LittleEndian.PutUint32(b[header:], 0); return b }), why: "a chunk of 0 bytes"},
		"a chunk of gigabytes":       {index: edited(func(b []byte) []byte { binary.LittleEndian.PutUint32(b[header:], 1<<31); return b }), why: "a chunk of 2147483648 bytes"},
		"chunks that overlap":        {index: edited(overlapping(header)), why: "not the chunk of the index"},
		"a sum of something else":    {index: edited(func(b []byte) []byte { b[header+10] ^= 1; return b }), why: "not the chunk of the index"},
		"chunks of the older one":    {index: edited(swapped(header)), why: "content of"},
		"all is new":                 {index: right, place: serveNewer, why: "of it are new"},
		"no ranges":                  {place: func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(newer) }, why: "the server answers 200"},
		"ranges that are refused":    {place: partly(func(w http.ResponseWriter, _, _ int) { w.WriteHeader(http.StatusRequestedRangeNotSatisfiable) }), why: "the server answers 416"},
		"another range":              {place: partly(func(w http.ResponseWriter, from, to int) { answer(w, from+1, to+1, newer[from+1:to+1]) }), why: "the server answers 206"},
		"a longer range":             {place: partly(func(w http.ResponseWriter, from, to int) { answer(w, from, to+1, newer[from:to+1]) }), why: "the server answers 206"},
		"another range's bytes":      {place: partly(func(w http.ResponseWriter, from, to int) { answer(w, from, to, newer[:to-from]) }), why: "not the chunk of the index"},
		"a range that ends early": {place: partly(func(w http.ResponseWriter, from, to int) {
			w.Header().Set("Content-Length", fmt.Sprint(to-from))
			answer(w, from, to, nil)
		}), why: "ends after"},
		"a range that is a portal": {place: partly(func(w http.ResponseWriter, _, _ int) { _, _ = w.Write([]byte("<html>")) }), why: "the server answers 200"},
	} {
		t.Run(what, func(t *testing.T) {
			store, kept := withOlder(t)
			if c.index == nil {
				c.index = right
			}
			if c.place == nil {
				c.place = serveNewer
			}
			if what == "all is new" {
				kept = nil
			}
			d, _ := fetcher(t, store, c.place)
			tally, err := d.Image(t.Context(), image, c.index, kept, nil)
			if err != nil {
				t.Fatal(err)
			}
			good(t, store)
			if tally.Whole == nil || !strings.Contains(tally.Whole.Error(), c.why) {
				t.Errorf("fetched whole: %v, want %q", tally.Whole, c.why)
			}
		})
	}
}

// overlapping makes the index's first chunk longer and its second one shorter.
func overlapping(header int) func([]byte) []byte {
	return func(b []byte) []byte {
		one, two := b[header:], b[header+36:]
		binary.LittleEndian.PutUint32(one, binary.LittleEndian.Uint32(one)+1)
		binary.LittleEndian.PutUint32(two, binary.LittleEndian.Uint32(two)-1)
		return b
	}
}

// swapped exchanges two chunks that the older image has.
func swapped(header int) func([]byte) []byte {
	return func(b []byte) []byte {
		one, two := b[header+36*20:][:36], b[header+36*30:][:36]
		was := bytes.Clone(one)
		copy(one, two)
		copy(two, was)
		return b
	}
}

// partly serves the whole well, and parts by do.
func partly(do func(w http.ResponseWriter, from, to int)) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		var from, to int
		if _, err := fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-%d", &from, &to); err != nil {
			serveNewer(w, req)
			return
		}
		do(w, from, min(to+1, len(newer)-1))
	}
}

func answer(w http.ResponseWriter, from, to int, data []byte) {
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(newer)))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(data)
}

// TestImageFromTheNextPlace: a place that serves no ranges does not hide one that
// does.
func TestImageFromTheNextPlace(t *testing.T) {
	store, kept := withOlder(t)
	d, from := fetcher(t, store, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, serveNewer)
	tally, err := d.Image(t.Context(), image, indexOf(t, newer), kept, nil)
	if err != nil || tally.Whole != nil || from[1].whole.Load() != 0 {
		t.Errorf("%+v, %v", tally, err)
	}
	good(t, store)
}

// TestImageGoesElsewhere: the parts of a blob may be where the registry keeps its
// blobs, as the whole may.
func TestImageGoesElsewhere(t *testing.T) {
	content := httptest.NewServer(http.HandlerFunc(serveNewer))
	defer content.Close()
	store, kept := withOlder(t)
	d, _ := fetcher(t, store, func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, content.URL, http.StatusTemporaryRedirect)
	})
	tally, err := d.Image(t.Context(), image, indexOf(t, newer), kept, nil)
	if err != nil || tally.Whole != nil || tally.Fetched > fresh+around {
		t.Errorf("%+v, %v", tally, err)
	}
	good(t, store)
}

// TestImageWaitsForAPlace: where nothing answers nothing is given up.
func TestImageWaitsForAPlace(t *testing.T) {
	store, kept := withOlder(t)
	down := Download{Source: stuckParts{}, Repo: oci.RepoLayer, Store: store, Pause: time.Millisecond}
	if _, err := down.Image(t.Context(), image, indexOf(t, newer), kept, nil); err == nil || refusal.Of(err) != "" {
		t.Errorf("from a place that is down: %v, want a plain failure", err)
	}
	slow, _ := fetcher(t, store, func(w http.ResponseWriter, _ *http.Request) {
		time.Sleep(60 * time.Millisecond)
		w.WriteHeader(http.StatusBadGateway)
	})
	slow.Pace = pull.Pace{Bytes: 1 << 30, Per: 50 * time.Millisecond}
	if _, err := slow.Image(t.Context(), image, indexOf(t, newer), kept, nil); !errors.Is(err, pull.ErrSlow) {
		t.Errorf("from a place that is slow: %v", err)
	}
	if store.Has(image.Digest, image.Size) {
		t.Error("the image is in the store")
	}
	info, err := os.Stat(store.Partial(image.Digest))
	if err != nil || info.Size() < int64(len(older))/2 {
		t.Errorf("what was there is given up: %v", err)
	}
}

type stuckParts struct{ stuck }

func (stuckParts) Ranges(context.Context, string, oci.Descriptor, []oci.Span) (io.ReadCloser, error) {
	return nil, errors.New("down")
}
