// SPDX-License-Identifier: Apache-2.0

package release

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// tarLayer makes an image layer of empty files.
func tarLayer(t *testing.T, names ...string) v1.Layer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, n := range names {
		if err := w.WriteHeader(&tar.Header{Name: n, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		t.Fatal(err)
	}
	return layer
}

// A file that a later layer of the image removes is not in the base.
func TestOpenBaseImage(t *testing.T) {
	image, err := mutate.AppendLayers(empty.Image, tarLayer(t, "etc/kept", "etc/gone"), tarLayer(t, "etc/.wh.gone", "etc/new"))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	repo := strings.TrimPrefix(server.URL, "http://") + "/base"
	tag, err := name.ParseReference(repo + ":x")
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(tag, image); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	if err := path.AppendImage(image); err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{repo + "@" + digest.String(), "oci:" + dir + "@" + digest.String()} {
		r, err := OpenBase("amd64")(context.Background(), ref)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close() // the test is over
		got := map[string]bool{}
		for files := tar.NewReader(r); ; {
			h, err := files.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			got[h.Name] = true
		}
		if want := "map[etc/kept:true etc/new:true]"; fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", ref, got, want)
		}
	}
	for _, ref := range []string{repo + "@sha256:" + strings.Repeat("0", 64), "oci:" + dir + "@sha256:" + strings.Repeat("0", 64), "oci:" + dir + "@x", repo} {
		if r, err := OpenBase("amd64")(context.Background(), ref); err == nil {
			r.Close()
			t.Errorf("%s: opened", ref)
		}
	}
}
