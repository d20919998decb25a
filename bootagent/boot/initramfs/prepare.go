// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/download"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// prepare brings what the overlay's layer needs into the store and enters its
// kernel where another one runs. The order keeps a node from fetching images
// that a kexec would throw away.
func (b *boot) prepare(ctx context.Context, found *track.Found) (*spec.Layer, error) {
	layer, _, err := trust.Layer(ctx, kept{b.store, b.source, b.say}, found.Overlay.Layer)
	if err != nil {
		return nil, err
	}
	if err := trust.ForMachine(layer, b.bootstrap, runtime.GOARCH); err != nil {
		return nil, err
	}
	b.record.Generation, b.record.Layer = found.Generation, layer
	if err := b.enterKernel(ctx, found, &layer); err != nil {
		return nil, err
	}
	var images []spec.Blob
	for _, i := range layer.Images {
		images = append(images, spec.Blob{Digest: i.Digest, Size: i.Size})
	}
	if err := b.blobs(ctx, images...); err != nil {
		return nil, err
	}
	if b.disk != "" && b.source != nil {
		b.keepKernel(ctx, &layer)
	}
	return &layer, nil
}

// keepKernel brings the layer's kernel to the disk though it runs already: without
// network, a loader that has changed since can only enter one that is there.
func (b *boot) keepKernel(ctx context.Context, layer *spec.Layer) {
	for _, blob := range []spec.Blob{{Digest: layer.Kernel.Digest, Size: layer.Kernel.Size}, layer.Initrd} {
		if b.store.Has(blob.Digest, blob.Size) {
			continue // it is verified when it is used
		}
		if err := b.download(ctx, blob); err != nil {
			b.say("the kernel is not kept: %v", err)
		}
	}
}

// blobs brings blobs into the store. What is there already is read and compared:
// a disk may rot, and others may have had it in hand.
func (b *boot) blobs(ctx context.Context, list ...spec.Blob) error {
	for _, blob := range list {
		if b.store.Has(blob.Digest, blob.Size) {
			err := b.store.Verify(blob.Digest)
			if err == nil {
				continue
			}
			if b.store.Has(blob.Digest, blob.Size) { // a fetch would find it and be content
				return fmt.Errorf("a bad blob cannot be replaced: %w", err)
			}
			b.say("%v: fetched again", err)
		}
		if b.source == nil {
			return absent(blob.Digest)
		}
		if err := b.download(ctx, blob); err != nil {
			return err
		}
	}
	return nil
}

func (b *boot) download(ctx context.Context, blob spec.Blob) error {
	begun, said := time.Now(), time.Now()
	progress := func(n int64) {
		if time.Since(said) > 5*time.Second {
			said = time.Now()
			b.say("fetching %.19s…: %d of %d MB", blob.Digest, n>>20, blob.Size>>20)
		}
	}
	err := download.Download{Source: b.source, Repo: oci.RepoLayer, Store: b.store}.Blob(ctx, oci.Descriptor{Digest: blob.Digest, Size: blob.Size}, progress)
	if err != nil {
		return err
	}
	b.say("fetched %.19s…: %.1f MB in %.1f s", blob.Digest, float64(blob.Size)/1e6, time.Since(begun).Seconds())
	return nil
}

// alwaysLoaded are the modules that no device asks for.
func alwaysLoaded() []string {
	data, err := os.ReadFile(paths.ModulesLoad)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return strings.Fields(string(data))
}

// diskPatience is how long to wait for the state partition: not at all where
// there is no disk, and a moment where partitions may still be read.
func diskPatience(sys string) time.Duration {
	disks, _ := filepath.Glob(filepath.Join(sys, "class/block/*/device")) // the pattern is valid
	for _, disk := range disks {
		if name := filepath.Base(filepath.Dir(disk)); !strings.HasPrefix(name, "sr") && !strings.HasPrefix(name, "fd") {
			return 3 * time.Second
		}
	}
	return 0
}
