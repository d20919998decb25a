// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/refusal"
	"github.com/caisson-os/caisson/spec"
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
	retryAfter = time.Millisecond
	server := httptest.NewServer(f)
	defer server.Close()
	ref, err := oci.ParseRef(strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	src, err := oci.Open(ref, oci.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	return Blob(t.Context(), src, oci.RepoLayer, oci.Describe(oci.TypeSquashfs, content).Bare(), store, nil)
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

func TestBlobStopsWhenToldTo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := Blob(ctx, stuck{}, oci.RepoLayer, oci.Describe(oci.TypeSquashfs, content).Bare(), newStore(t), nil)
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
	retryAfter = time.Millisecond
	err := Blob(t.Context(), stuck{}, oci.RepoLayer, oci.Describe(oci.TypeSquashfs, content).Bare(), newStore(t), nil)
	if err == nil || refusal.Of(err) != "" {
		t.Errorf("Blob from a place that is down = %v, want a plain failure", err)
	}
}

func TestClock(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.DateOnly, s)
		if s != "" && err != nil {
			t.Fatal(err)
		}
		return v
	}
	for _, c := range []struct {
		what, rtc, build, newest, issued, want string
		sure                                   bool
	}{
		{"all good", "2026-11-10", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-10", true},
		{"no clock", "", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-01", false},
		{"1970", "1970-01-01", "2026-10-01", "2026-10-20", "2026-09-01", "2026-10-20", false},
		{"1970, nothing newer than the build", "1970-01-01", "2026-10-01", "", "2026-09-01", "2026-10-01", false},
		{"2100", "2100-01-01", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-01", false},
		{"almost five years later", "2031-10-30", "2026-10-01", "", "2026-11-01", "2031-10-30", true},
		{"more than five years later", "2031-11-02", "2026-10-01", "", "2026-11-01", "2026-11-01", false},
		{"a slow clock after the build", "2026-10-05", "2026-10-01", "2026-10-20", "2026-11-01", "2026-11-01", true},
	} {
		now, sure := Clock{RTC: at(c.rtc), Build: at(c.build), Newest: at(c.newest)}.Now(at(c.issued))
		if !now.Equal(at(c.want)) || sure != c.sure {
			t.Errorf("%s: Now = %s, %v; want %s, %v", c.what, now.Format(time.DateOnly), sure, c.want, c.sure)
		}
	}
}

// TestOpenUsesTheFolderOfCredentials asks a registry that wants a password, from a
// machine whose clock says 1970.
func TestOpenUsesTheFolderOfCredentials(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if _, password, _ := req.BasicAuth(); password != "secret" {
			w.Header().Set("WWW-Authenticate", "Basic")
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.WriteHeader(http.StatusNotFound)
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "https://")
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	b := spec.Bootstrap{Registry: host + "/metal-a", CAs: []string{string(ca)}}
	clock := Clock{RTC: time.Unix(0, 0), Build: server.Certificate().NotBefore.Add(-time.Hour)} // issued after the agent was built
	dir := t.TempDir()
	for i, want := range []string{"no credentials", "not found"} {
		src, err := Open(b, dir, clock, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := src.Manifest(t.Context(), oci.RepoNode, "superhost", ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("attempt %d: %v, want %q", i+1, err, want)
		}
		if err := os.WriteFile(filepath.Join(dir, authFile), fmt.Appendf(nil, `{"auths":{%q:{"username":"n","password":"secret"}}}`, host), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	clock.Build = server.Certificate().NotAfter.Add(time.Hour)
	src, err := Open(b, dir, clock, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	var invalid x509.CertificateInvalidError
	if _, err := src.Manifest(t.Context(), oci.RepoNode, "superhost", ""); !errors.As(err, &invalid) {
		t.Errorf("a certificate that ended before the agent was built: %v", err)
	}
}
