// SPDX-License-Identifier: Apache-2.0

package registry_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/registrytest"
)

// places runs a test of writing against each kind of registry.
func places(t *testing.T, test func(t *testing.T, r *registry.Registry)) {
	t.Run("layout", func(t *testing.T) { test(t, open(t, "oci:"+t.TempDir()+"/out")) })
	t.Run("distribution", func(t *testing.T) { test(t, open(t, registrytest.Distribution(t)+"/metal-a")) })
	t.Run("referrers API", func(t *testing.T) { test(t, open(t, registrytest.WithReferrers(t)+"/metal-a")) })
}

func open(t *testing.T, ref string) *registry.Registry {
	t.Helper()
	r, err := registry.Open(ref, registry.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// push stores an overlay under the tags.
func push(t *testing.T, r *registry.Registry, text string, tags ...string) string {
	t.Helper()
	raw, blobs := oci.OverlayManifest([]byte(text), []byte(`{"bundle":"`+text+`"}`))
	for _, b := range blobs {
		if err := r.PutData(t.Context(), "node", b); err != nil {
			t.Fatal(err)
		}
	}
	digest, err := r.PutManifest(t.Context(), "node", oci.MediaTypeManifest, raw, tags...)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

func TestWriteAndRead(t *testing.T) {
	places(t, func(t *testing.T, r *registry.Registry) {
		ctx := t.Context()
		first := push(t, r, "one", "superhost", "mac-525400123456")
		second := push(t, r, "two", "superhost")
		for ref, want := range map[string]string{"superhost": second, "mac-525400123456": first, first: first} {
			raw, _, err := r.Manifest(ctx, "node", ref)
			if err != nil || oci.Digest(raw) != want {
				t.Errorf("Manifest(%s) = %s, %v; want %s", ref, oci.Digest(raw), err, want)
			}
		}
		tags, err := r.Tags(ctx, "node")
		if want := []string{"mac-525400123456", "superhost"}; err != nil || !slices.Equal(tags, want) {
			t.Errorf("Tags = %v, %v; want %v", tags, err, want)
		}
		if tags, err := r.Tags(ctx, "fleet"); err != nil || len(tags) != 0 {
			t.Errorf("Tags of a missing repository = %v, %v; want none", tags, err)
		}
		resp, err := r.Source().Manifest(ctx, "node", "superhost", "")
		if err != nil {
			t.Fatal(err)
		}
		overlay, bundles, err := oci.ReadOverlay(ctx, r.Source(), "node", resp)
		if err != nil || string(overlay) != "two" || len(bundles) != 1 {
			t.Errorf("ReadOverlay = %q, %d bundles, %v", overlay, len(bundles), err)
		}
		if again, err := r.Source().Manifest(ctx, "node", "superhost", second); err != nil || resp.ETag != "" && !again.NotModified {
			t.Errorf("Manifest with the digest as etag = %+v, %v; want not modified", again, err)
		}
		if _, _, err := r.Manifest(ctx, "node", "absent"); !errors.Is(err, oci.ErrNotFound) {
			t.Errorf("Manifest(absent) = %v, want ErrNotFound", err)
		}
	})
}

func TestBlobs(t *testing.T) {
	places(t, func(t *testing.T, r *registry.Registry) {
		ctx := t.Context()
		content := strings.Repeat("0123456789", 100_000)
		d := oci.Describe(oci.TypeSquashfs, []byte(content)).Bare()
		if has, err := r.HasBlob(ctx, "layer", d); has || err != nil {
			t.Fatalf("HasBlob before = %v, %v", has, err)
		}
		opener := func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(content)), nil }
		for range 2 { // the second one finds it there
			if err := r.PutBlob(ctx, "layer", d, opener); err != nil {
				t.Fatal(err)
			}
		}
		if has, err := r.HasBlob(ctx, "layer", d); !has || err != nil {
			t.Fatalf("HasBlob after = %v, %v", has, err)
		}
		body, size, err := r.Blob(ctx, "layer", d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close() // the test is over
		got, err := io.ReadAll(body)
		if err != nil || string(got) != content || size != d.Size {
			t.Errorf("Blob = %d bytes of %d, %v", len(got), size, err)
		}
		rest, err := r.Source().Blob(ctx, "layer", d, 999_990)
		if err != nil {
			t.Fatal(err)
		}
		defer rest.Close() // the test is over
		if got, err := io.ReadAll(rest); err != nil || string(got) != "0123456789" {
			t.Errorf("Blob from 999990 = %q, %v", got, err)
		}
		if _, _, err := r.Blob(ctx, "layer", oci.Digest([]byte("absent"))); !errors.Is(err, oci.ErrNotFound) {
			t.Errorf("Blob(absent) = %v, want ErrNotFound", err)
		}
		lie := oci.Describe(oci.TypeSquashfs, []byte("promised")).Bare()
		err = r.PutBlob(ctx, "layer", lie, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader("supplied")), nil })
		if err == nil {
			t.Error("PutBlob stored content under another's digest")
		}
		if has, _ := r.HasBlob(ctx, "layer", lie); has {
			t.Error("the lie is there")
		}
	})
}

func TestAttach(t *testing.T) {
	places(t, func(t *testing.T, r *registry.Registry) {
		ctx := t.Context()
		subject := push(t, r, "layer", "v1")
		raw, _, err := r.Manifest(ctx, "node", subject)
		if err != nil {
			t.Fatal(err)
		}
		d := oci.Describe(oci.MediaTypeManifest, raw)
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				if _, err := r.Attach(context.WithoutCancel(ctx), "node", d, registry.Attachment{oci.TypeBundle, oci.Describe(oci.TypeBundle, fmt.Appendf(nil, "bundle %d", i)), map[string]string{"n": fmt.Sprint(i)}}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		list, err := r.Referrers(ctx, "node", subject)
		if err != nil || len(list) != 4 {
			t.Fatalf("Referrers = %d, %v; want 4", len(list), err)
		}
		for _, l := range list {
			raw, _, err := r.Manifest(ctx, "node", l.Digest)
			if err != nil {
				t.Fatal(err)
			}
			m, err := oci.ParseManifest(raw)
			if err != nil || m.ArtifactType != oci.TypeBundle || m.Subject.Digest != subject {
				t.Errorf("referrer = %+v, %v", m, err)
			}
		}
		if list, err := r.Referrers(ctx, "node", oci.Digest([]byte("other"))); err != nil || len(list) != 0 {
			t.Errorf("Referrers of another = %v, %v; want none", list, err)
		}
	})
}

func TestLayoutBatch(t *testing.T) {
	dir := t.TempDir()
	r, reader := open(t, "oci:"+dir), open(t, "oci:"+dir)
	b, err := r.Batch()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 {
		push(t, r, fmt.Sprint(i), fmt.Sprintf("node-%d", i))
	}
	if tags, err := reader.Tags(t.Context(), "node"); err != nil || len(tags) != 0 {
		t.Errorf("before the flush: %d tags, %v", len(tags), err)
	}
	if err := b.Flush(); err != nil {
		t.Fatal(err)
	}
	if tags, err := reader.Tags(t.Context(), "node"); err != nil || len(tags) != 50 {
		t.Errorf("after the flush: %d tags, %v", len(tags), err)
	}
}

// TestABatchReadsItsTags: who writes a batch finds what it has, as at a server, and nobody reads
// index.json for that.
func TestABatchReadsItsTags(t *testing.T) {
	for what, fresh := range map[string]bool{"a new directory": true, "a layout": false} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			if !fresh {
				push(t, open(t, "oci:"+dir), "old", "a", "b")
			}
			r := open(t, "oci:"+dir)
			b, err := r.Batch()
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(dir, "index.json"), filepath.Join(dir, "away")); err != nil {
				t.Fatal(err)
			}
			digest := push(t, r, "new", "a")
			if resp, err := r.Source().Manifest(t.Context(), "node", "a", ""); err != nil || resp.Digest != digest {
				t.Errorf("what the batch has put: %+v, %v", resp, err)
			}
			if resp, err := r.Source().Manifest(t.Context(), "node", "a", digest); err != nil || !resp.NotModified {
				t.Errorf("with its etag: %+v, %v", resp, err)
			}
			if _, _, err := r.Manifest(t.Context(), "node", "b"); errors.Is(err, oci.ErrNotFound) != fresh || err != nil && !fresh {
				t.Errorf("what was there before: %v", err)
			}
			if err := r.Delete(t.Context(), "node", "a"); err != nil {
				t.Fatal(err)
			}
			if _, _, err := r.Manifest(t.Context(), "node", "a"); !errors.Is(err, oci.ErrNotFound) {
				t.Errorf("what the batch has removed: %v", err)
			}
			if err := os.Rename(filepath.Join(dir, "away"), filepath.Join(dir, "index.json")); err != nil {
				t.Fatal(err)
			}
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			if _, _, err := r.Manifest(t.Context(), "node", "a"); errors.Is(err, oci.ErrNotFound) != fresh {
				t.Errorf("what was not flushed counts: %v", err)
			}
		})
	}
}

func TestLayoutDelete(t *testing.T) {
	r := open(t, "oci:"+t.TempDir())
	digest := push(t, r, "one", "a", "b")
	if err := r.Delete(t.Context(), "node", "a"); err != nil {
		t.Fatal(err)
	}
	if tags, _ := r.Tags(t.Context(), "node"); !slices.Equal(tags, []string{"b"}) {
		t.Errorf("tags = %v", tags)
	}
	if err := r.Delete(t.Context(), "node", digest); err != nil {
		t.Fatal(err)
	}
	if err := r.Delete(t.Context(), "node", digest); !errors.Is(err, oci.ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
}

func TestLayoutRefusesWhatItsNameDoesNotSay(t *testing.T) {
	r := open(t, "oci:"+t.TempDir())
	d := oci.Describe("text/plain", []byte("promised"))
	for text, want := range map[string]refusal.Code{"supplied": refusal.Digest, "short": refusal.Size, "far too long a text": refusal.Size} {
		err := r.PutBlob(t.Context(), "layer", d, func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil })
		if refusal.Of(err) != want {
			t.Errorf("PutBlob(%s) = %v, want %s", text, err, want)
		}
	}
}

// TestHandler reads what a layout holds through HTTP, with the node's client.
func TestHandler(t *testing.T) {
	dir := t.TempDir()
	w := open(t, "oci:"+dir)
	digest := push(t, w, "one", "superhost")
	h, err := registry.Handler(dir)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(h)
	defer server.Close()
	r := open(t, strings.TrimPrefix(server.URL, "http://")+"/any/prefix")
	resp, err := r.Source().Manifest(t.Context(), "node", "superhost", "")
	if err != nil || resp.Digest != digest {
		t.Fatalf("Manifest = %+v, %v", resp, err)
	}
	if again, err := r.Source().Manifest(t.Context(), "node", "superhost", resp.ETag); err != nil || !again.NotModified {
		t.Errorf("with etag: %+v, %v", again, err)
	}
	push(t, w, "two", "superhost")
	if again, err := r.Source().Manifest(t.Context(), "node", "superhost", resp.ETag); err != nil || again.NotModified {
		t.Errorf("after a push: %+v, %v", again, err)
	}
	raw, _, _ := w.Manifest(t.Context(), "node", digest)
	if _, err := w.Attach(t.Context(), "node", oci.Describe(oci.MediaTypeManifest, raw), registry.Attachment{Type: oci.TypeBundle, Blob: oci.Describe(oci.TypeBundle, []byte("b")),
		Annotations: map[string]string{"n": "1"}}); err != nil {
		t.Fatal(err)
	}
	for name, of := range map[string]*registry.Registry{"served": r, "layout": w} {
		list, err := of.Referrers(t.Context(), "node", digest)
		if err != nil || len(list) != 1 || list[0].ArtifactType != oci.TypeBundle || list[0].Annotations["n"] != "1" {
			t.Errorf("Referrers, %s = %+v, %v", name, list, err)
		}
	}
	if tags, err := r.Tags(t.Context(), "node"); err != nil || !slices.Equal(tags, []string{"superhost"}) {
		t.Errorf("Tags = %v, %v", tags, err)
	}
	d := oci.Describe("text/plain", []byte("new"))
	if err := r.PutData(t.Context(), "node", d); err == nil {
		t.Error("a read-only registry took a blob")
	}
}
