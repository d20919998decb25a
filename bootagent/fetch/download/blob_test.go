// SPDX-License-Identifier: Apache-2.0

package download

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/attack"
)

var content = []byte(strings.Repeat("0123456789abcdef", 100_000))

// flaky serves content and drops the connection after some bytes each time.
type flaky struct {
	after  int // bytes per answer; 0 is all
	sent   atomic.Int64
	starts atomic.Int64 // requests without a range
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Range") == "" {
		f.starts.Add(1)
	}
	http.ServeContent(&dropping{w, f, f.after}, req, "", time.Time{}, bytes.NewReader(content))
}

type dropping struct {
	http.ResponseWriter
	f    *flaky
	left int
}

func (d *dropping) Write(b []byte) (int, error) {
	if d.f.after > 0 && len(b) > d.left {
		b = b[:d.left]
	}
	n, err := d.ResponseWriter.Write(b)
	d.left -= n
	d.f.sent.Add(int64(n))
	if d.f.after > 0 && d.left == 0 {
		return n, errors.New("cut")
	}
	return n, err
}

func download(t *testing.T, f *flaky, store *layers.Store) error {
	t.Helper()
	server := httptest.NewServer(f)
	defer server.Close()
	ref, err := oci.ParseRef(strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	src, err := pull.Open(ref, pull.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	return Download{Source: src, Repo: oci.RepoLayer, Store: store, Pause: time.Millisecond}.Blob(t.Context(), oci.Describe(oci.TypeSquashfs, content).Bare(), nil)
}

func newStore(t *testing.T) *layers.Store {
	t.Helper()
	store, err := layers.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// TestResume cuts the line again and again: nothing is sent twice.
func TestResume(t *testing.T) {
	for _, after := range []int{0, 1 << 20, 300_000, 99_991} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			store, f := newStore(t), &flaky{after: after}
			if err := download(t, f, store); err != nil {
				t.Fatal(err)
			}
			if err := store.Verify(oci.Digest(content)); err != nil {
				t.Error(err)
			}
			if got := f.sent.Load(); got != int64(len(content)) || f.starts.Load() != 1 {
				t.Errorf("%d bytes sent in %d starts for %d", got, f.starts.Load(), len(content))
			}
			if err := download(t, f, store); err != nil || f.starts.Load() != 1 {
				t.Errorf("what is there was asked for again: %v", err)
			}
		})
	}
}

// TestResumeAfterReboot finds a partial file and hashes it before it goes on.
func TestResumeAfterReboot(t *testing.T) {
	digest := oci.Digest(content)
	for what, c := range map[string]struct {
		partial []byte
		starts  int64
	}{
		"good":     {content[:1_000_000], 0},
		"complete": {content, 0},
		"rotten":   {append([]byte("x"), content[1:1_000_000]...), 1},
		"too long": {append(bytes.Clone(content), "more"...), 1},
		"other":    {[]byte("something else"), 1},
	} {
		t.Run(what, func(t *testing.T) {
			store, f := newStore(t), &flaky{}
			if err := os.WriteFile(store.Partial(digest), c.partial, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := download(t, f, store); err != nil {
				t.Fatal(err)
			}
			if err := store.Verify(digest); err != nil || f.starts.Load() != c.starts {
				t.Errorf("%v, %d starts, want %d", err, f.starts.Load(), c.starts)
			}
		})
	}
}

// given gives content, and notes from where on it was asked for.
type given struct {
	mu   sync.Mutex
	asks []int64
}

// asked returns the places so far.
func (g *given) asked() []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.asks)
}

func (*given) Manifest(context.Context, string, string, string) (oci.Response, error) {
	return oci.Response{}, oci.ErrNotFound
}

func (g *given) Blob(_ context.Context, _ string, _ oci.Descriptor, offset int64) (io.ReadCloser, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.asks = append(g.asks, offset)
	return io.NopCloser(bytes.NewReader(content[offset:])), nil
}

// The service stages a layer beside its looks, and a verb may want the same one: of two that fetch a
// blob one waits for the other. Both would write to one file, also when it has its name.
func TestOneFetchesAtATime(t *testing.T) {
	d, half := oci.Describe(oci.TypeSquashfs, content).Bare(), len(content)/2
	for name, c := range map[string]struct {
		end   func(f *os.File, store *layers.Store) error // of the other fetch
		index []byte
		asks  []int64
	}{
		"it brings all": {end: func(f *os.File, store *layers.Store) error {
			_, err := f.Write(content[half:])
			return errors.Join(err, store.Commit(d.Digest))
		}},
		"it brings all of an image": {index: indexOf(t, content), end: func(f *os.File, store *layers.Store) error {
			_, err := f.Write(content[half:])
			return errors.Join(err, store.Commit(d.Digest))
		}},
		"it is cut":        {end: func(*os.File, *layers.Store) error { return nil }, asks: []int64{int64(half)}},
		"it is given back": {end: func(_ *os.File, store *layers.Store) error { return store.Drop(d.Digest) }, asks: []int64{0}},
	} {
		t.Run(name, func(t *testing.T) {
			store, from := newStore(t), new(given)
			f, err := os.Create(store.Partial(d.Digest))
			if err == nil {
				_, err = f.Write(content[:half])
			}
			if err = errors.Join(err, unix.Flock(int(f.Fd()), unix.LOCK_EX)); err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				done := make(chan error, 1)
				go func() {
					_, err := Download{Source: from, Repo: oci.RepoLayer, Store: store}.Image(t.Context(), d, c.index, nil, nil)
					done <- err
				}()
				synctest.Wait()
				if asked := from.asked(); len(asked) > 0 {
					t.Errorf("it asks from %d on while another one fetches", asked)
				}
				if err := errors.Join(c.end(f, store), f.Close()); err != nil {
					t.Error(err)
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
			if err := store.Verify(d.Digest); err != nil || !slices.Equal(from.asked(), c.asks) {
				t.Errorf("%v, asked for from %d on, want %d", err, from.asked(), c.asks)
			}
			if _, err := os.Lstat(store.Path(d.Digest) + ".partial"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a partial file is left: %v", err)
			}
		})
	}
}

func TestBlobStopsWhenToldTo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Download{Source: stuck{}, Repo: oci.RepoLayer, Store: newStore(t), Pause: time.Millisecond}.Blob(ctx, oci.Describe(oci.TypeSquashfs, content).Bare(), nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("Blob with a cancelled context = %v", err)
	}
}

// stuck is a source that fails until its context ends.
type stuck struct{}

func (stuck) Manifest(context.Context, string, string, string) (oci.Response, error) {
	return oci.Response{}, errors.New("down")
}

func (stuck) Blob(ctx context.Context, _ string, _ oci.Descriptor, _ int64) (io.ReadCloser, error) {
	return nil, errors.Join(errors.New("down"), ctx.Err())
}

func TestBlobThatIsDownIsNoRefusal(t *testing.T) {
	err := Download{Source: stuck{}, Repo: oci.RepoLayer, Store: newStore(t), Pause: time.Millisecond}.Blob(t.Context(), oci.Describe(oci.TypeSquashfs, content).Bare(), nil)
	if err == nil || refusal.Of(err) != "" {
		t.Errorf("Blob from a place that is down = %v, want a plain failure", err)
	}
}

// fetch downloads the layer of a world, as a node does that has accepted its
// overlay.
func fetch(t *testing.T, w *attack.World, store *layers.Store, checks []check) error {
	t.Helper()
	ref, err := oci.ParseRef(w.Serve(t) + "/metal-a")
	if err != nil {
		t.Fatal(err)
	}
	src, err := pull.Open(ref, pull.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	layer, err := trust.Layer(t.Context(), src, w.LayerDigest)
	if err != nil {
		return err
	}
	from := Download{Source: src, Repo: oci.RepoLayer, Store: store, Pause: time.Millisecond, checks: checks}
	for _, d := range layer.Manifest.Layers {
		if err := from.Blob(t.Context(), d, nil); err != nil {
			return err
		}
	}
	return nil
}

// TestNoCheckIsVacuous takes each check of this package out, and wants every row
// that names it to fail, and every check to have a row.
func TestNoCheckIsVacuous(t *testing.T) {
	rows := map[string][]attack.Row{}
	for _, r := range attack.Load(t) {
		if r.Of() == "download" {
			_, name, _ := strings.Cut(r.Check, "/")
			rows[name] = append(rows[name], r)
		}
	}
	for i, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if len(rows[c.name]) == 0 {
				t.Fatal("no attack names this check")
			}
			for _, r := range rows[c.name] {
				w, store := r.Forge(t), newStore(t)
				if err := fetch(t, w, store, nil); refusal.Of(err) != refusal.Code(r.Code) {
					t.Errorf("%s: %v, want the code %s", r.Name, err, r.Code)
				}
				if store.Has(w.ImageDigest, int64(w.ImageSize)) {
					t.Errorf("%s: the image is in the store", r.Name)
				}
				without := slices.Delete(slices.Clone(checks), i, i+1)
				if err := fetch(t, w, newStore(t), without); refusal.Of(err) == refusal.Code(r.Code) {
					t.Errorf("%s: refused as %s without the check: %v", r.Name, r.Code, err)
				}
			}
		})
		delete(rows, c.name)
	}
	for name := range rows {
		t.Errorf("attacks name the check %q, which this package does not have", name)
	}
}
