// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/caisson-os/caisson/bootagent/boot/root"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/sense/memory"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
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
func (b *boot) prepare(ctx context.Context, from oci.Source, found *track.Found) (_ *spec.Layer, err error) {
	b.brought = spec.Bytes{}
	end := b.trace.Begin("layer")
	defer func() { end(err); b.trace.Bytes(b.brought) }()
	staged := b.stager(from)
	staged.Bytes = &b.brought
	layer, err := staged.Describe(ctx, found.Generation.Layer)
	if err != nil {
		return nil, err
	}
	if err := trust.ForMachine(layer, b.bootstrap, runtime.GOARCH); err != nil {
		return nil, err
	}
	b.record.Generation, b.record.Layer = found.Generation, layer
	if err := b.fitsMemory(layer); err != nil {
		return nil, err
	}
	if _, another := b.commandLine(found, &layer); another && b.lasting() {
		if err := staged.Missing(ctx, stage.Images(layer)...); err != nil { // the rest is verified below
			return nil, err
		}
	}
	if err := b.enterKernel(ctx, from, found, &layer); err != nil {
		return nil, err
	}
	if b.whenRead, b.record.Images, err = root.Check(ctx, staged, layer, b.takeTrees); err != nil {
		return nil, err
	}
	if b.lasting() && from != nil {
		// Without network, a loader that has changed since can only enter a kernel that is
		// on the disk. It is verified when it is used.
		if err := staged.Missing(ctx, stage.Kernel(layer)...); err != nil {
			b.say("the kernel is not kept: %v", err)
		}
	}
	return &layer, nil
}

// fitsMemory asks, before any of it is fetched, whether images that no disk takes fit into
// memory: a machine that runs out of it dies without a word.
func (b *boot) fitsMemory(layer spec.Layer) error {
	if b.lasting() {
		return nil
	}
	has, err := memory.Read(b.proc + "/meminfo")
	if err != nil {
		b.say("whether the images fit into memory is not known: %v", err)
		return nil
	}
	var missing []spec.Blob
	for _, part := range stage.Images(layer) {
		if !b.store.Has(part.Digest, part.Size) {
			missing = append(missing, part.Blob)
		}
	}
	return has.Boots(missing)
}

func (b *boot) stager(from oci.Source) stage.Stager {
	s := stage.Stager{Store: b.store, From: from, Talk: b.limits.talk, Say: b.say}
	if known, err := b.folder.Load(); err == nil { // what a lost state knew of is fetched again
		s.Kept = known.Layers()
	}
	return s
}

// alwaysLoaded are the modules that no device asks for.
func alwaysLoaded() []string {
	data, err := os.ReadFile(paths.ModulesLoad)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return strings.Fields(string(data))
}
