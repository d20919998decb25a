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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/fetch/download"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/verity"
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
	if err != nil {
		return false, fault.But(err, errAbsent)
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

// Memory is that of a machine which has its images in it, in bytes. It says whether more of them
// fit; what is done about those that do not is the business of who brings them.
type Memory struct{ Total, Available int64 }

// leastReserve is the memory left to the programs of a small machine.
const leastReserve = 128 << 20

// reserve returns the memory that images never take: programs may need it while a layer waits. It
// is more than the tenth of memory that /run leaves, so a fetch does not end for want of room
// there.
func (m Memory) reserve() int64 { return max(m.Total/8, leastReserve) }

// Refuses says why images cannot be brought into memory beside those that are there, ""
// where they can. The descriptions that it is given are verified, so each size has its cap.
func (m Memory) Refuses(missing []spec.Blob) string {
	var need int64
	for _, b := range missing {
		need += b.Size
	}
	if need == 0 || need <= m.Available-m.reserve() {
		return ""
	}
	const mb = 1e6
	return fmt.Sprintf("both layers do not fit into memory: the new images have %.1f MB, and of %.1f MB that are "+
		"available %.1f MB are kept for what runs",
		float64(need)/mb, float64(m.Available)/mb, float64(m.reserve())/mb)
}

// maxMeminfo is more than any kernel writes, in bytes.
const maxMeminfo = 64 << 10

// ReadMemory reads a file as proc_meminfo(5) has it.
func ReadMemory(name string) (m Memory, err error) {
	text, err := ownfiles.ReadPublic(name, maxMeminfo)
	if err != nil {
		return m, err
	}
	for _, w := range []struct {
		key string
		to  *int64
	}{{"MemTotal:", &m.Total}, {"MemAvailable:", &m.Available}} {
		_, rest, _ := strings.Cut(string(text), w.key)
		if _, err := fmt.Sscanf(rest, "%d kB", w.to); err != nil {
			return m, fmt.Errorf("read %s: %s %w", name, w.key, err)
		}
		*w.to <<= 10
	}
	return m, nil
}

// ForStart is the memory that a boot leaves to the root beside the images, in bytes: with less,
// systemd and the agent do not come up. What a root has for its own work comes on top.
const ForStart = 96 << 20

// varies is how much less may be available at the next boot of the same machine: two boots of one
// layer differed by some MiB, and who gives a machine what it lacks is not sent for more.
const varies = 8 << 20

// TooLittle is the error of a boot whose images do not fit into memory.
type TooLittle struct {
	Images int64 // what they have, in bytes
	Has    int64 // the machine's memory as its kernel counts it
	Needs  int64 // with how much the boot would have been begun
}

func (e *TooLittle) Error() string {
	return fmt.Sprintf("too little memory: the layer has %.1f MB of images to keep in memory; for that this machine "+
		"needs %d MiB, and it has %d",
		float64(e.Images)/1e6, mebibytes(e.Needs), e.Has>>20)
}

// More is how much memory the machine lacks, in MiB.
func (e *TooLittle) More() int64 { return mebibytes(e.Needs) - e.Has>>20 }

// Boots says whether a root comes up whose missing images are brought into memory first: nil,
// or a [TooLittle].
func (m Memory) Boots(missing []spec.Blob) error {
	var images int64
	for _, b := range missing {
		images += b.Size
	}
	if lacks := images + ForStart - m.Available; images > 0 && lacks > 0 {
		// More memory makes the kernel keep more of it.
		return &TooLittle{Images: images, Has: m.Total, Needs: m.Total + lacks + lacks/8 + varies}
	}
	return nil
}

func mebibytes(n int64) int64 { return (n + 1<<20 - 1) >> 20 }

// kept is a source that answers from the store and asks another one for the rest,
// which it keeps. It holds manifests as they were served, so that what leads from
// a signed digest to a description is verified again at each boot: no file on the
// disk says which description belongs to which layer.
type kept struct {
	store *layers.Store
	from  oci.Source // nil without network
	say   func(format string, args ...any)

	fetched bool // something that was not in the store
}

// Manifest takes digests only.
func (k *kept) Manifest(ctx context.Context, repo, digest, _ string) (oci.Response, error) {
	if data, err := k.store.Get(digest, oci.MaxManifest); err == nil {
		return oci.Response{Data: data, Digest: digest}, nil
	}
	if k.from == nil {
		return oci.Response{}, absent(digest)
	}
	r, err := k.from.Manifest(ctx, repo, digest, "")
	if err == nil {
		k.keep(digest, r.Data)
	}
	return r, err
}

// Blob takes small ones, whole.
func (k *kept) Blob(ctx context.Context, repo string, d oci.Descriptor, _ int64) (io.ReadCloser, error) {
	data, err := k.store.Get(d.Digest, d.Size)
	if err != nil {
		if k.from == nil {
			return nil, absent(d.Digest)
		}
		if data, err = oci.ReadBlob(ctx, k.from, repo, d, oci.MaxConfig); err != nil {
			return nil, err
		}
		k.keep(d.Digest, data)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

// keep stores what the next boot may need. A full disk does not stop this one.
func (k *kept) keep(digest string, data []byte) {
	k.fetched = true
	fault.Say(k.say, fault.In(k.store.Put(digest, data), "not kept"))
}

var errAbsent = errors.New("is not in the store")

func absent(digest string) error {
	return fmt.Errorf("%s %w", digest, errAbsent)
}

// Trees is how the kernel checks images while they are read.
type Trees struct {
	Sound map[string]bool // blobs that the last good run has left as they should be, see layers.Store
}

// Checked brings images into the store. Those that it returns, by digest, the kernel is to
// check while they are read; all others are as [Stager.Verified] leaves them. Of the former
// one that the last good run has left is not read here, which keeps a boot short;
// any other is read once, for its tree, whose root says as much as its digest.
func (s Stager) Checked(ctx context.Context, list ...Part) (whenRead map[string]verity.Hash, err error) {
	whenRead = map[string]verity.Hash{}
	for _, part := range list {
		root, err := verity.Parse(part.Root)
		if s.Trees == nil || err != nil { // without a root
			if err := s.Verified(ctx, part); err != nil {
				return nil, err
			}
			continue
		}
		made := s.Trees.Sound[part.Digest] && s.Store.Has(part.Digest, part.Size) && s.Store.HasTree(part.Digest, part.Size)
		made = made || s.Store.Has(part.Digest, part.Size) && s.Store.MakeTree(part.Digest, root) == nil // why not, Verified says
		if !made {
			if err := s.Verified(ctx, part); err != nil {
				return nil, err
			}
			if err := s.Store.MakeTree(part.Digest, root); err != nil {
				s.Say("%s is not checked while it is read: %v", part.Name, err)
				continue
			}
		}
		whenRead[part.Digest] = root
	}
	return whenRead, nil
}
