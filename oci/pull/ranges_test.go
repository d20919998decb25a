// SPDX-License-Identifier: Apache-2.0

package pull

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// ranger opens a source that serves parts.
func ranger(t *testing.T, ref string) oci.Ranger {
	t.Helper()
	parsed, err := oci.ParseRef(ref)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Open(parsed, Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	return s.(oci.Ranger)
}

// TestRanges reads parts of a blob, small ones and some that are asked for in pieces.
// Answers come in another order than they were asked for.
func TestRanges(t *testing.T) {
	data := make([]byte, 5<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // it never fails
	d := oci.Describe(oci.TypeSquashfs, data).Bare()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		time.Sleep(time.Duration(asked.Add(1)%5) * 5 * time.Millisecond)
		http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
	}))
	defer server.Close()
	dir := t.TempDir()
	for name, content := range map[string]string{"oci-layout": `{"imageLayoutVersion":"1.0.0"}`, "index.json": `{"schemaVersion":2}`, oci.BlobPath(d.Digest): string(data)} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, ref := range []string{strings.TrimPrefix(server.URL, "http://"), "oci:" + dir} {
		s := ranger(t, ref)
		for _, spans := range [][]oci.Span{
			nil, {{From: 0, To: 1}}, {{From: 0, To: d.Size}}, {{From: d.Size - 1, To: d.Size}},
			{{From: 5, To: 10}, {From: 10, To: 11}, {From: 100, To: 2<<20 + 7}, {From: 3 << 20, To: 5 << 20}},
		} {
			var want []byte
			for _, p := range spans {
				want = append(want, data[p.From:p.To]...)
			}
			body, err := s.Ranges(t.Context(), oci.RepoLayer, d, spans)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(body)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s: %v: %d bytes, %v; want %d", ref, spans, len(got), err, len(want))
			}
			_ = body.Close() // read-only
		}
		for _, spans := range [][]oci.Span{{{From: 1, To: 1}}, {{From: -1, To: 1}}, {{From: 0, To: d.Size + 1}}, {{From: 5, To: 9}, {From: 8, To: 10}}, {{From: 5, To: 9}, {From: 1, To: 2}}} {
			if _, err := s.Ranges(t.Context(), oci.RepoLayer, d, spans); err == nil {
				t.Errorf("%s: %v can be read", ref, spans)
			}
		}
	}
}

// TestRangesGivesWhatCame: what a part brought before it broke is not lost.
func TestRangesGivesWhatCame(t *testing.T) {
	data := bytes.Repeat([]byte("x"), 1000)
	d := oci.Describe(oci.TypeSquashfs, data).Bare()
	for what, c := range map[string]struct {
		answer func(w http.ResponseWriter)
		came   int
		code   refusal.Code
	}{
		"cut":       {func(w http.ResponseWriter) { part206(w, 500, 900, 1000); _, _ = w.Write(data[:123]) }, 223, ""},
		"elsewhere": {func(w http.ResponseWriter) { part206(w, 501, 901, 1000) }, 100, refusal.Range},
		"whole":     {func(w http.ResponseWriter) { _, _ = w.Write(data) }, 100, refusal.Range},
		"resized":   {func(w http.ResponseWriter) { part206(w, 500, 900, 2000) }, 100, refusal.Range},
	} {
		t.Run(what, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				if req.Header.Get("Range") == "bytes=500-899" {
					c.answer(w)
					return
				}
				http.ServeContent(w, req, "", time.Time{}, bytes.NewReader(data))
			}))
			defer server.Close()
			body, err := ranger(t, strings.TrimPrefix(server.URL, "http://")).Ranges(t.Context(), oci.RepoLayer, d, []oci.Span{{From: 0, To: 100}, {From: 500, To: 900}})
			if err != nil {
				t.Fatal(err)
			}
			defer body.Close() // read-only
			got, err := io.ReadAll(body)
			if err == nil || len(got) != c.came || refusal.Of(err) != c.code {
				t.Errorf("%d bytes, %v; want %d and %q", len(got), err, c.came, c.code)
			}
		})
	}
}

func part206(w http.ResponseWriter, from, to, size int) {
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, size))
	w.Header().Set("Content-Length", fmt.Sprint(to-from))
	w.WriteHeader(http.StatusPartialContent)
}
