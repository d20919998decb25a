// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/mediatype"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/layers/delta"
	"github.com/caisson-os/caisson/layers/image"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/registrytest"
	"github.com/caisson-os/caisson/test/require"
)

// TestDelta: a node that has one version of a layer fetches of another one what is
// new, from any registry and between any two versions. What caisson diff says of it
// is what comes.
func TestDelta(t *testing.T) {
	require.Slow(t)
	require.Tool(t, "mksquashfs")
	for name, push := range map[string]func(t *testing.T) (to, from string){
		"a registry": func(t *testing.T) (string, string) {
			a := registrytest.Distribution(t)
			return a + "/metal-a", a + "/metal-a"
		},
		"caisson serve": func(t *testing.T) (string, string) {
			dir := t.TempDir()
			if _, err := registry.Open("oci:"+dir, registry.Options{}); err != nil {
				t.Fatal(err)
			}
			h, err := registry.Handler(dir)
			if err != nil {
				t.Fatal(err)
			}
			s := httptest.NewServer(h)
			t.Cleanup(s.Close)
			return "oci:" + dir, strings.TrimPrefix(s.URL, "http://")
		},
	} {
		t.Run(name, func(t *testing.T) {
			to, from := push(t)
			reg, err := registry.Open(to, registry.Options{PlainHTTP: true})
			if err != nil {
				t.Fatal(err)
			}
			tree := t.TempDir()
			for i := range 40 {
				write(t, tree, i, byte(i), 100<<10)
			}
			versions := []string{pushTree(t, reg, "1", tree)}
			write(t, tree, 7, 100, 120<<10) // one file is another one
			versions = append(versions, pushTree(t, reg, "2", tree))
			write(t, tree, 50, 101, 90<<10) // one more
			versions = append(versions, pushTree(t, reg, "3", tree))
			for _, step := range [][2]int{{0, 1}, {1, 2}, {0, 2}, {2, 0}} {
				moved(t, reg, from, versions[step[0]], versions[step[1]])
			}
		})
	}
}

// write writes a file that zstd makes nothing smaller of.
func write(t *testing.T, tree string, n int, seed byte, size int) {
	t.Helper()
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data) // it never fails
	if err := os.WriteFile(filepath.Join(tree, fmt.Sprintf("file-%02d", n)), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// pushTree makes a layer of one image and pushes it as a build does.
func pushTree(t *testing.T, reg *registry.Registry, version, tree string) string {
	t.Helper()
	dir := t.TempDir()
	file := func(name string, fill func(path string)) builder.Blob {
		path := filepath.Join(dir, name)
		fill(path)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return builder.Blob{Blob: spec.Blob{Digest: oci.Digest(data), Size: int64(len(data))}, Path: path, Title: name}
	}
	built := file("base", func(path string) {
		if err := image.Squashfs(t.Context(), tree, path, image.Options{Level: image.LevelFast, Epoch: 1000, AsRoot: true}); err != nil {
			t.Fatal(err)
		}
	})
	index := file("base.chunks", func(path string) {
		data, err := os.ReadFile(built.Path)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		if err := delta.WriteIndex(&b, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	kernel := file("kernel", func(path string) {
		if err := os.WriteFile(path, []byte("kernel"), 0o644); err != nil {
			t.Fatal(err)
		}
	})
	built.MediaType, index.MediaType, kernel.MediaType = image.MediaType, delta.MediaType, mediatype.Kernel
	p := release.Pusher{Registry: reg, Now: time.Unix(1000, 0)}
	d, err := p.Push(t.Context(), &builder.Result{
		Layer: spec.Layer{APIVersion: spec.APIVersion, Kind: spec.KindLayer, Fleet: "metal-a", Version: version, Arch: runtime.GOARCH, Created: "2026-01-01T00:00:00Z",
			Kernel: spec.KernelBlob{Blob: kernel.Blob}, Initrd: kernel.Blob,
			Images: []spec.Image{{Name: "base", MediaType: image.MediaType, Blob: built.Blob, Chunks: &index.Blob}}},
		Blobs: []builder.Blob{built, index, kernel},
	}, "trixie")
	if err != nil {
		t.Fatal(err)
	}
	return d.Digest
}

// moved has a node that has one layer stage another one.
func moved(t *testing.T, reg *registry.Registry, from, has, wants string) {
	t.Helper()
	ref, err := oci.ParseRef(from)
	if err != nil {
		t.Fatal(err)
	}
	src, err := pull.Open(ref, pull.Options{PlainHTTP: true})
	if err != nil {
		t.Fatal(err)
	}
	store, err := layers.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var said []string
	s := stage.Stager{Store: store, From: src, Kept: []string{has}, Talk: time.Hour, Say: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }}
	if err := s.Layer(t.Context(), has, spec.Bootstrap{Fleet: "metal-a"}); err != nil {
		t.Fatal(err)
	}
	said = nil
	if err := s.Layer(t.Context(), wants, spec.Bootstrap{Fleet: "metal-a"}); err != nil {
		t.Fatal(err)
	}
	layer, err := s.Describe(t.Context(), wants)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Verified(t.Context(), stage.Images(layer)...); err != nil {
		t.Fatal(err)
	}
	old, err := release.Read(t.Context(), reg, has)
	if err != nil {
		t.Fatal(err)
	}
	new, err := release.Read(t.Context(), reg, wants)
	if err != nil {
		t.Fatal(err)
	}
	diff, _, err := release.Compare(t.Context(), []release.Layer{old}, []release.Layer{new}, false)
	if err != nil || len(diff) != 1 || diff[0].Bytes > 400<<10 {
		t.Fatalf("%+v, %v: want one difference of less than 400 KiB of 4 MiB", diff, err)
	}
	if want := fmt.Sprintf("fetched base: %.1f MB in", float64(diff[0].Bytes)/1e6); len(said) != 1 || !strings.HasPrefix(said[0], want) || !strings.HasSuffix(said[0], "MB were here") {
		t.Errorf("the node says %q, want %q", said, want)
	}
}
