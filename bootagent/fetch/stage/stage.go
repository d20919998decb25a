// SPDX-License-Identifier: Apache-2.0

// Package stage brings what a layer consists of into a node's store: its description,
// kernel and images, verified, from a registry where the store lacks them.
//
// The loader stages what it is about to boot; the service stages, in the background,
// what waits for a reboot, so that the next boot finds it there. A node without a disk has it in
// memory, and [Memory] says whether it fits. The package knows layers and no overlays; what may
// be staged was decided before.
package stage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/fetch/download"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/layers/delta"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Stager fills one store.
type Stager struct {
	Store *layers.Store
	From  oci.Source    // nil: everything must be in the store
	Kept  []string      // digests of layers whose images may be in the store: what a new one shares with them is not fetched
	Talk  time.Duration // between two lines about the same wait
	Say   func(format string, args ...any)
	Bytes *spec.Bytes // counts what came and what was there; nil: nobody asks
	Trees *Trees      // nil: the kernel checks nothing while it is read
}

// Layer brings all of a layer that the store lacks. What is there is not read: the
// boot that uses it does.
func (s Stager) Layer(ctx context.Context, digest string, b spec.Bootstrap) error {
	layer, err := s.Describe(ctx, digest)
	if err != nil {
		return err
	}
	if err := trust.ForMachine(layer, b, runtime.GOARCH); err != nil {
		return err
	}
	return errors.Join(s.Missing(ctx, Images(layer)...), s.Missing(ctx, Kernel(layer)...))
}

// Part is a blob of a layer and what people call it: base, kernel …
type Part struct {
	Name string
	spec.Blob
	Chunks *spec.Blob // index of what it consists of; nil without one
	Root   string     // of its hash tree; "" without one
}

// Images are the blobs of a layer's images, bottom first.
func Images(layer spec.Layer) []Part {
	return plain.Each(layer.Images, func(i spec.Image) Part { return Part{i.Name, i.Blob, i.Chunks, layer.Roots[i.Digest]} })
}

// Kernel are the blobs of a layer's kernel and initrd.
func Kernel(layer spec.Layer) []Part {
	return []Part{{Name: "kernel", Blob: layer.Kernel.Blob}, {Name: "initrd", Blob: layer.Initrd}}
}

// Describe returns the description of the layer whose manifest has the digest.
func (s Stager) Describe(ctx context.Context, digest string) (spec.Layer, error) {
	defer s.Waiting("the description of layer " + digest)()
	src := &kept{store: s.Store, from: s.From, say: s.Say}
	layer, err := trust.Layer(ctx, src, digest)
	if err != nil {
		return spec.Layer{}, err
	}
	if src.fetched && layer.LeftOut != nil { // of one that was here it has been said
		s.Say("layer %s: %s", digest, spec.LeftOut(layer.LeftOut))
	}
	return layer.Layer, nil
}

// Here reports whether a layer is in the store: a boot has nothing to fetch of it.
func (s Stager) Here(ctx context.Context, digest string) (bool, error) {
	layer, err := trust.Layer(ctx, &kept{store: s.Store, say: s.Say}, digest)
	if errors.Is(err, errAbsent) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(append(Images(layer.Layer), Kernel(layer.Layer)...),
		func(p Part) bool { return !s.Store.Has(p.Digest, p.Size) }), nil
}

// Missing brings the blobs that are not in the store.
func (s Stager) Missing(ctx context.Context, list ...Part) error {
	for _, part := range list {
		if s.Store.Has(part.Digest, part.Size) {
			continue
		}
		if err := s.fetch(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

// Verified brings blobs into the store; what is there already is read and compared:
// a disk may rot, and others may have had access to it.
func (s Stager) Verified(ctx context.Context, list ...Part) error {
	for _, part := range list {
		if s.Store.Has(part.Digest, part.Size) {
			err := s.Store.Verify(part.Digest)
			if err == nil {
				continue
			}
			if s.Store.Has(part.Digest, part.Size) { // a fetch would find it and be content
				return fmt.Errorf("a bad blob cannot be replaced: %w", err)
			}
			s.Say("%s: %v: fetched again", part.Name, err)
		}
		if err := s.fetch(ctx, part); err != nil {
			return err
		}
	}
	return nil
}

func (s Stager) fetch(ctx context.Context, part Part) error {
	if s.From == nil {
		return absent(part.Digest)
	}
	begun := time.Now()
	var have atomic.Int64
	done := s.every(func(time.Duration) {
		s.Say("fetching %s: %.1f of %.1f MB", part.Name, float64(have.Load())/1e6, float64(part.Size)/1e6)
	})
	tally, err := s.bring(ctx, part, have.Store)
	done()
	if s.Bytes != nil { // what came before it was cut, too
		s.Bytes.Fetched += tally.Fetched
		s.Bytes.Had += tally.Had
	}
	if err != nil {
		return err
	}
	if tally.Whole != nil {
		s.Say("%s is fetched whole: %v", part.Name, tally.Whole)
	}
	line := fmt.Sprintf("fetched %s: %.1f MB in %.1f s", part.Name, float64(tally.Fetched)/1e6, time.Since(begun).Seconds())
	if tally.Had > 0 {
		line += fmt.Sprintf(", %.1f MB were here", float64(tally.Had)/1e6)
	}
	s.Say("%s", line)
	return nil
}

// Waiting says now and then what is waited for, until the function that it returns
// is called: a loader that says nothing looks like one that hangs.
func (s Stager) Waiting(what string) (done func()) {
	return s.every(func(since time.Duration) { s.Say("waiting for %s, %.0f s so far", what, since.Seconds()) })
}

func (s Stager) every(say func(since time.Duration)) (done func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	begun, tick := time.Now(), time.NewTicker(s.Talk)
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-tick.C:
				say(time.Since(begun))
			}
		}
	}()
	return func() {
		tick.Stop()
		close(end)
		<-ended
	}
}

// bring fetches a part: by its chunks where an image of the same name is kept.
func (s Stager) bring(ctx context.Context, part Part, progress func(int64)) (download.Tally, error) {
	from := download.Download{Source: s.From, Repo: oci.RepoLayer, Store: s.Store}
	want := oci.Descriptor{Digest: part.Digest, Size: part.Size}
	like := s.like(ctx, part)
	if len(like) == 0 {
		return from.Image(ctx, want, nil, nil, progress)
	}
	index, err := oci.ReadBlob(ctx, &kept{store: s.Store, from: s.From, say: s.Say}, oci.RepoLayer,
		oci.Descriptor{MediaType: oci.TypeChunks, Digest: part.Chunks.Digest, Size: part.Chunks.Size}, delta.MaxIndex)
	if refusal.Of(err) != "" || errors.Is(err, oci.ErrNotFound) {
		tally, failed := from.Image(ctx, want, nil, nil, progress)
		tally.Whole = err
		return tally, failed
	}
	if err != nil {
		return download.Tally{}, err
	}
	tally, err := from.Image(ctx, want, index, like, progress)
	tally.Fetched += part.Chunks.Size
	return tally, err
}

// like lists the images of the same name in the layers that are kept.
func (s Stager) like(ctx context.Context, part Part) (digests []string) {
	if part.Chunks == nil {
		return nil
	}
	for _, layer := range s.Kept {
		l, err := trust.Layer(ctx, &kept{store: s.Store, say: s.Say}, layer)
		if err != nil {
			continue // a layer that is not kept shares nothing
		}
		for _, i := range l.Images {
			if i.Name == part.Name && i.Digest != part.Digest && s.Store.Has(i.Digest, i.Size) && !slices.Contains(digests, i.Digest) {
				digests = append(digests, i.Digest)
			}
		}
	}
	return digests
}

// Begin says to other processes, by a lock on a file, that a layer is being fetched,
// until release. One that is at it already keeps it so.
func Begin(file string) (release func(), err error) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	release = func() { f.Close() } // which ends the lock
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK):
		return release, nil
	case err != nil:
		release()
		return nil, err
	}
	now := time.Now()
	if err := os.Chtimes(f.Name(), now, now); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// Runs reports whether a process fetches a layer, and since when, to the second. One that
// was killed holds the lock no more.
func Runs(file string) (is bool, since time.Time) {
	f, err := os.Open(file)
	if err != nil {
		return false, time.Time{} // nothing was staged since this boot, or only root may know
	}
	defer f.Close() // only read
	if err := unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		return false, time.Time{}
	}
	info, err := f.Stat()
	if err != nil {
		return true, time.Time{}
	}
	return true, info.ModTime().UTC().Truncate(time.Second)
}
