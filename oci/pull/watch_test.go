// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/trust/refusal"
)

// trickle sends one byte of content now and then, for ever.
func trickle(t *testing.T, every time.Duration) string {
	t.Helper()
	stop := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", oci.MediaTypeManifest)
		for {
			if _, err := io.WriteString(w, " "); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			select {
			case <-stop:
				return
			case <-time.After(every):
			}
		}
	}))
	t.Cleanup(server.Close)
	t.Cleanup(func() { close(stop) })
	return server.URL
}

// TestTrickle: what never falls silent is ended all the same, as a failure and not
// as a refusal: a slow line does not lie.
func TestTrickle(t *testing.T) {
	server := trickle(t, 10*time.Millisecond)
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	for what, o := range map[string]Options{
		"by its rate":     {Pace: Pace{1000, 200 * time.Millisecond}},
		"by its patience": {Patience: 200 * time.Millisecond},
	} {
		o.PlainHTTP, o.Timeout = true, 3*time.Second // of silence: never reached
		s, err := Open(oci.Ref{Host: u.Host}, o)
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		_, err = s.Manifest(t.Context(), oci.RepoNode, "superhost", "")
		if !errors.Is(err, ErrSlow) || refusal.Of(err) != "" || time.Since(begun) > 5*time.Second {
			t.Errorf("a manifest ended %s: %v after %s", what, err, time.Since(begun))
		}
		if o.Patience > 0 {
			continue
		}
		d := oci.Descriptor{MediaType: oci.TypeSquashfs, Digest: oci.Digest(nil), Size: 1 << 30}
		body, err := s.Blob(t.Context(), oci.RepoLayer, d, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, body); !errors.Is(err, ErrSlow) {
			t.Errorf("a blob: %v", err)
		}
		body.Close()
	}
}

// TestSlowLine: what is above the least rate may take its time.
func TestSlowLine(t *testing.T) {
	content := strings.Repeat("x", 400)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 40 {
			io.WriteString(w, content[:10])
			w.(http.Flusher).Flush()
			time.Sleep(60 * time.Millisecond)
		}
	}))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(oci.Ref{Host: u.Host}, Options{PlainHTTP: true, Pace: Pace{10, time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	if data, err := oci.ReadBlob(t.Context(), s, oci.RepoLayer, oci.Describe("text/plain", []byte(content)).Bare(), 1000); err != nil || string(data) != content {
		t.Errorf("%d bytes, %v", len(data), err)
	}
}
