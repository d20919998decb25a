// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
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
		o.PlainHTTP, o.Timeout = true, 5*time.Minute // of silence: never reached
		s, err := Open(oci.Ref{Host: u.Host}, o)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_, err = s.Manifest(ctx, oci.RepoNode, "superhost", "")
		if !errors.Is(err, ErrSlow) || refusal.Of(err) != "" {
			t.Errorf("a manifest ended %s: %v", what, err)
		}
		if o.Patience > 0 {
			continue
		}
		d := oci.Descriptor{MediaType: oci.TypeSquashfs, Digest: oci.Digest(nil), Size: 1 << 30}
		body, err := s.Blob(ctx, oci.RepoLayer, d, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, body); !errors.Is(err, ErrSlow) {
			t.Errorf("a blob: %v", err)
		}
		body.Close()
	}
}

// TestSlowLine: what is above the least rate may take its time. The clock is the test's:
// a machine with other work would be a slower line.
func TestSlowLine(t *testing.T) {
	for every, want := range map[time.Duration]error{999 * time.Millisecond: nil, 1001 * time.Millisecond: ErrSlow} {
		synctest.Test(t, func(t *testing.T) {
			ctx, w := newWatch(t.Context(), Options{Pace: Pace{10, time.Second}}, 0)
			line, server := io.Pipe()
			context.AfterFunc(ctx, func() { _ = server.CloseWithError(ctx.Err()) }) // it never fails
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for range 4000 {
					time.Sleep(every)
					if _, err := io.WriteString(server, "0123456789"); err != nil {
						return
					}
				}
				_ = server.Close() // it never fails
			}()
			body := w.body(line)
			n, err := io.Copy(io.Discard, body)
			if !errors.Is(err, want) || want == nil && n != 40_000 {
				t.Errorf("10 bytes each %s: %d bytes, %v, want %v", every, n, err, want)
			}
			if err := body.Close(); err != nil {
				t.Error(err)
			}
			<-ended
		})
	}
}
