// SPDX-License-Identifier: Apache-2.0

package download

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/spec/refusal"
)

// from opens servers as a registry and its mirrors.
func from(t *testing.T, o pull.Options, servers ...http.HandlerFunc) oci.Source {
	t.Helper()
	var hosts []string
	for _, h := range servers {
		s := httptest.NewServer(h)
		t.Cleanup(s.Close)
		hosts = append(hosts, strings.TrimPrefix(s.URL, "http://"))
	}
	o.PlainHTTP, o.Mirrors = true, hosts[1:]
	src, err := pull.Open(oci.Ref{Host: hosts[0]}, o)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// slowly sends a byte now and then and, when cut is given, ends each answer after
// that many.
func slowly(every time.Duration, cut int) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		at := 0
		if _, err := fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &at); err == nil {
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, len(content)-1, len(content)))
			w.Header().Set("Content-Length", fmt.Sprint(len(content)-at))
			w.WriteHeader(http.StatusPartialContent)
		} else {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		}
		for n := 0; cut == 0 || n < cut; n++ {
			if _, err := w.Write(content[at : at+1]); err != nil {
				return
			}
			w.(http.Flusher).Flush()
			at++
			select {
			case <-req.Context().Done():
				return
			case <-time.After(every):
			}
		}
	}
}

func whole(w http.ResponseWriter, req *http.Request) { (&flaky{}).ServeHTTP(w, req) }

var blob = oci.Describe(oci.TypeSquashfs, content).Bare()

// TestTooSlow: a download that brings too little fails, and is not a refusal: the
// boot then goes on with what the node has.
func TestTooSlow(t *testing.T) {
	pace := pull.Pace{Bytes: 1000, Per: 200 * time.Millisecond}
	for what, c := range map[string]struct {
		o      pull.Options
		server http.HandlerFunc
	}{
		"a trickle":                    {pull.Options{Pace: pace}, slowly(10*time.Millisecond, 0)},
		"a few bytes in each answer":   {pull.Options{}, slowly(time.Millisecond, 3)},
		"a byte, then silence":         {pull.Options{Timeout: 50 * time.Millisecond}, slowly(time.Hour, 0)},
		"a trickle through every wall": {pull.Options{Pace: pace, Timeout: time.Second}, slowly(100*time.Millisecond, 2)},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			err := Download{Source: from(t, c.o, c.server), Repo: oci.RepoLayer, Store: newStore(t), Pause: time.Millisecond, Pace: pace}.Blob(t.Context(), blob, nil)
			if !errors.Is(err, pull.ErrSlow) || refusal.Of(err) != "" || time.Since(begun) > time.Minute {
				t.Errorf("%v after %s", err, time.Since(begun))
			}
		})
	}
}

// TestNextPlace: a place that is slow, or lies, does not hide the next one, and what
// it brought that is good counts.
func TestNextPlace(t *testing.T) {
	bad := strings.Repeat("fedcba9876543210", len(content)/16)
	for what, first := range map[string]http.HandlerFunc{
		"slow":            slowly(10*time.Millisecond, 0),
		"rubbish":         func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(bad)) },
		"a portal":        func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"cut for ever":    slowly(10*time.Millisecond, 3), // below the pace, however fast the machine asks again
		"half, then lies": halfThenLies,
		"down":            func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			pace := pull.Pace{Bytes: 10_000, Per: 2 * time.Second} // the good place is not slow on a busy machine, either
			store := newStore(t)
			d := Download{Source: from(t, pull.Options{Pace: pace}, first, whole), Repo: oci.RepoLayer, Store: store, Pause: time.Millisecond, Pace: pace}
			if err := d.Blob(t.Context(), blob, nil); err != nil {
				t.Fatal(err)
			}
			if err := store.Verify(blob.Digest); err != nil {
				t.Error(err)
			}
		})
	}
}

// halfThenLies serves the first half, and something else where it is resumed.
func halfThenLies(w http.ResponseWriter, req *http.Request) {
	if req.Header.Get("Range") == "" {
		w.Header().Set("Content-Length", fmt.Sprint(len(content)))
		_, _ = w.Write(content[:len(content)/2]) // the connection ends here
		return
	}
	at := 0
	_, _ = fmt.Sscanf(req.Header.Get("Range"), "bytes=%d-", &at)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", at, len(content)-1, len(content)))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(make([]byte, len(content)-at))
}
