// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/bootagent/download"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// limits are how long the loader waits. Whatever waits has one.
type limits struct {
	ask   time.Duration // for the registry's answer
	soon  time.Duration // for a newer layer, where a good one is on the disk
	only  time.Duration // for the only layer there is, before everything is asked again
	pause time.Duration // before the second try; it grows
	hang  time.Duration // without any progress, before the machine starts over; more than all of the above
	talk  time.Duration // between two lines about the same wait
}

// usual is what a machine boots with. In a minute an ordinary line brings an
// ordinary layer; a slower one is the service's business, not the boot's.
var usual = limits{ask: time.Minute, soon: time.Minute, only: 10 * time.Minute, pause: 2 * time.Second, hang: 15 * time.Minute, talk: 5 * time.Second}

// waiting says now and then what the boot waits for, until the function that it
// returns is called: a loader that says nothing cannot be told from one that hangs.
func (b *boot) waiting(what string) (done func()) {
	return b.every(func(since time.Duration) { b.say("waiting for %s, %.0f s so far", what, since.Seconds()) })
}

func (b *boot) every(say func(since time.Duration)) (done func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	begun, tick := time.Now(), time.NewTicker(b.limits.talk)
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

// keepKernel brings the layer's kernel to the disk though it runs already: without
// network, a loader that has changed since can only enter one that is there.
func (b *boot) keepKernel(ctx context.Context, from oci.Source, layer *spec.Layer) {
	for _, blob := range []spec.Blob{{Digest: layer.Kernel.Digest, Size: layer.Kernel.Size}, layer.Initrd} {
		if b.store.Has(blob.Digest, blob.Size) {
			continue // it is verified when it is used
		}
		if err := b.download(ctx, from, blob); err != nil {
			b.say("the kernel is not kept: %v", err)
		}
	}
}

// blobs brings blobs into the store. What is there already is read and compared:
// a disk may rot, and others may have had access to it.
func (b *boot) blobs(ctx context.Context, from oci.Source, list ...spec.Blob) error {
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
		if from == nil {
			return absent(blob.Digest)
		}
		if err := b.download(ctx, from, blob); err != nil {
			return err
		}
	}
	return nil
}

func (b *boot) download(ctx context.Context, from oci.Source, blob spec.Blob) error {
	begun := time.Now()
	var have atomic.Int64
	done := b.every(func(time.Duration) {
		b.say("fetching %.19s…: %.1f of %.1f MB", blob.Digest, float64(have.Load())/1e6, float64(blob.Size)/1e6)
	})
	d := download.Download{Source: from, Repo: oci.RepoLayer, Store: b.store}
	err := d.Blob(ctx, oci.Descriptor{Digest: blob.Digest, Size: blob.Size}, have.Store)
	done()
	if err != nil {
		return err
	}
	b.say("fetched %.19s…: %.1f MB in %.1f s", blob.Digest, float64(blob.Size)/1e6, time.Since(begun).Seconds())
	return nil
}
