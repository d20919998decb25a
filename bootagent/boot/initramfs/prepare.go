// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// errSlow is returned where what the registry named did not arrive in time.
var errSlow = errors.New("not fetched within")

// prepareInTime is prepare with a deadline: soon, where there is a generation to
// fall back on. What was fetched until then stays, and the next attempt resumes it.
func (b *boot) prepareInTime(ctx context.Context, from oci.Source, found *track.Found) (*spec.Layer, error) {
	limit := b.limits.only
	if b.hasGood() {
		limit = b.limits.soon
	}
	b.progress.Made()
	late := fmt.Errorf("generation %d: %w %s", found.Generation.Generation, errSlow, limit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, late)
	defer cancel()
	layer, err := b.prepare(ctx, from, found)
	if err != nil && ctx.Err() != nil && !errors.Is(err, errStartOver) {
		err = context.Cause(ctx)
	}
	return layer, err
}

// hasGood reports whether this node has run a generation that it may run again.
func (b *boot) hasGood() bool {
	s, err := b.folder.Load()
	return err == nil && s.Current != nil
}

// prepare brings what the overlay's layer needs into the store and enters its
// kernel where another one runs. from may be nil: then all must be in the store.
//
// On a diskless node the kernel comes first, since a kexec would throw fetched
// images away. On a disk they outlive it, and all come first: a loader behind a
// kexec that waits for images could not go back to another kernel.
func (b *boot) prepare(ctx context.Context, from oci.Source, found *track.Found) (*spec.Layer, error) {
	layer, err := b.describe(ctx, from, found.Overlay.Layer)
	if err != nil {
		return nil, err
	}
	if err := trust.ForMachine(layer, b.bootstrap, runtime.GOARCH); err != nil {
		return nil, err
	}
	b.record.Generation, b.record.Layer = found.Generation, layer
	var images []spec.Blob
	for _, i := range layer.Images {
		images = append(images, spec.Blob{Digest: i.Digest, Size: i.Size})
	}
	if b.lasting() {
		for _, blob := range images {
			if b.store.Has(blob.Digest, blob.Size) {
				continue // it is verified below
			}
			if err := b.blobs(ctx, from, blob); err != nil {
				return nil, err
			}
		}
	}
	if err := b.enterKernel(ctx, from, found, &layer); err != nil {
		return nil, err
	}
	if err := b.blobs(ctx, from, images...); err != nil {
		return nil, err
	}
	if b.lasting() && from != nil {
		b.keepKernel(ctx, from, &layer)
	}
	return &layer, nil
}

func (b *boot) describe(ctx context.Context, from oci.Source, digest string) (spec.Layer, error) {
	defer b.waiting("the description of layer " + digest)()
	layer, _, err := trust.Layer(ctx, kept{b.store, from, b.say}, digest)
	return layer, err
}

// alwaysLoaded are the modules that no device asks for.
func alwaysLoaded() []string {
	data, err := os.ReadFile(paths.ModulesLoad)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return strings.Fields(string(data))
}
