// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// BenchmarkPull is an image from a registry until it can be mounted, and beside it, in turn, the
// same bytes by the same server to a file that is hashed on the way and flushed: goal
// ≥ 0.85 of that rate ("x-copy").
func BenchmarkPull(b *testing.B) {
	image := make([]byte, 128<<20)
	_, _ = rand.NewChaCha8([32]byte{45}).Read(image) // never fails
	layout := b.TempDir()
	r, err := registry.Open("oci:"+layout, registry.Options{})
	if err != nil {
		b.Fatal(err)
	}
	blob := oci.Describe(oci.TypeLayerConfig, image)
	if err := r.PutData(b.Context(), oci.RepoLayer, blob); err != nil {
		b.Fatal(err)
	}
	handler, err := registry.Handler(layout)
	if err != nil {
		b.Fatal(err)
	}
	server := httptest.NewServer(handler)
	defer server.Close()
	ref, err := oci.ParseRef(strings.TrimPrefix(server.URL, "http://") + "/fleet")
	if err != nil {
		b.Fatal(err)
	}
	source, err := pull.Open(ref, pull.Options{PlainHTTP: true})
	if err != nil {
		b.Fatal(err)
	}
	url := server.URL + "/v2/fleet/layer/blobs/" + blob.Digest
	var ours, plain time.Duration
	b.SetBytes(int64(len(image)))
	for b.Loop() {
		dir := b.TempDir()
		begun := time.Now()
		store, err := layers.OpenStore(dir)
		if err != nil {
			b.Fatal(err)
		}
		s := Stager{Store: store, From: source, Talk: time.Minute, Say: b.Logf}
		if err := s.Missing(b.Context(), Part{Name: "base", Blob: spec.Blob{Digest: blob.Digest, Size: blob.Size}}); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(begun)
		begun = time.Now()
		if err := copied(url, filepath.Join(dir, "copy")); err != nil {
			b.Fatal(err)
		}
		plain += time.Since(begun)
	}
	b.ReportMetric(plain.Seconds()/ours.Seconds(), "x-copy")
	b.ReportMetric(float64(len(image))*float64(b.N)/1e6/ours.Seconds(), "MB/s")
}

// copied writes what a server has to a file, hashes it, and flushes it.
func copied(url, name string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close() // only read
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.MultiWriter(file, sha256.New()), resp.Body)
	return errors.Join(err, file.Sync(), file.Close())
}
