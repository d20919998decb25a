// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// trickle is a registry that answers manifests of nodes at once and everything of
// a layer with a byte now and then, for as long as somebody listens.
type trickle struct {
	oci.Source
	manifests bool // and descriptions of layers come at once, too
}

func (s trickle) Manifest(ctx context.Context, repo, reference, etag string) (oci.Response, error) {
	if repo == oci.RepoLayer && !s.manifests {
		<-ctx.Done()
		return oci.Response{}, ctx.Err()
	}
	return s.Source.Manifest(ctx, repo, reference, etag)
}

func (s trickle) Blob(ctx context.Context, repo string, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	r, err := s.Source.Blob(ctx, repo, d, offset)
	if image := d.MediaType == ""; err != nil || repo != oci.RepoLayer || s.manifests && !image {
		return r, err
	}
	return drops{ctx, r}, nil
}

type drops struct {
	ctx context.Context
	io.ReadCloser
}

func (d drops) Read(p []byte) (int, error) {
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(20 * time.Millisecond):
		return d.ReadCloser.Read(p[:1])
	}
}

// talk is a console that several may write to.
type talk struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (w *talk) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.Write(p)
}

func (w *talk) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

// A node with a good generation on its disk boots it soon, however slowly the
// registry brings a newer one, and says what it waits for.
func TestASlowRegistry(t *testing.T) {
	long := strings.Repeat("an image that takes its time ", 100)
	for _, manifests := range []bool{false, true} {
		p := publish(t)
		p.disk.device = "/dev/vda1"
		p.overlay(1, p.layer("good").Overlay.Layer)
		p.boots()
		p.comesUp()
		p.overlay(2, p.layer(long).Overlay.Layer)
		said := &talk{}
		p.console = screen.Console{W: said}
		p.ways.source = trickle{p.ways.source, manifests}
		p.machine.limits.soon, p.machine.limits.talk = 150*time.Millisecond, 20*time.Millisecond
		now := time.Now()
		synctest.Test(t, func(t *testing.T) { // no time passes but what is waited
			time.Sleep(time.Until(now)) // a bubble's clock begins long ago
			p.t = t
			if got := p.boots(); got != 1 || p.choice.sync != "behind" || p.choice.source != "cached" {
				t.Errorf("generation %d, %s, %s; want the good one", got, p.choice.sync, p.choice.source)
			}
			if took := time.Since(now); took > time.Second {
				t.Errorf("that took %s", took)
			}
		})
		want := "waiting for the description of layer"
		if manifests {
			want = "fetching base: 0.0 of 0.0 MB"
		}
		if text := said.String(); !strings.Contains(text, want) || !strings.Contains(text, "not fetched within 150ms") {
			t.Errorf("console:\n%s", text)
		}
		s, err := p.disk.folder.Load()
		if err != nil || s.Staged == nil || s.Staged.Attempts != 0 {
			t.Errorf("what was not begun counts as an attempt: %+v, %v", s.Staged, err)
		}
	}
}

// A node without anything to fall back on does not hang on one bad connection: it
// looks again, and goes on where it was. Behind a kexec, too: a start-over would lose that.
// Where nothing at all comes there, the arguments of the kexec may be why.
func TestASlowRegistryAtTheFirstBoot(t *testing.T) {
	behind := []string{spec.KexecMarker, kernel.KexecCounted + "sha256:01"}
	for name, row := range map[string]struct {
		words []string
		some  bool // of the layer comes
		over  bool // the loader starts over
	}{"the first loader": {nil, false, false}, "some comes behind a kexec": {behind, true, false}, "nothing comes behind a kexec": {behind, false, true}} {
		t.Run(name, func(t *testing.T) {
			p := publish(t)
			p.machine.words = row.words
			p.overlay(1, p.layer("an image that takes its time").Overlay.Layer)
			well := p.ways.source
			p.ways.source = trickle{well, row.some}
			p.machine.limits.only, p.machine.limits.pause = 100*time.Millisecond, time.Millisecond
			p.console = screen.Console{W: writerFunc(func(text string) {
				if strings.Contains(text, "tries again") { // the next try has all the time that it takes
					p.ways.source, p.machine.limits.only = well, time.Minute
				}
			})}
			now := time.Now()
			synctest.Test(t, func(t *testing.T) { // no time passes but what is waited
				time.Sleep(time.Until(now))
				p.t = t
				made, err := p.chooser.choose(t.Context())
				if row.over != errors.Is(err, errStartOver) || !row.over && (err != nil || made.source != "fetched") {
					t.Errorf("%v, %+v", err, made)
				}
			})
		})
	}
}

type writerFunc func(string)

func (f writerFunc) Write(p []byte) (int, error) { f(string(p)); return len(p), nil }

// What is whole on the disk is booted from there: the registry is not asked for it
// again, and cannot hold it up.
func TestTheLastGoodNeedsNoRegistry(t *testing.T) {
	p := publish(t)
	p.disk.device = "/dev/vda1"
	p.overlay(1, p.layer("good").Overlay.Layer)
	p.boots()
	p.comesUp()
	p.ways.source = trickle{p.ways.source, false}
	found, _, err := p.chooser.fallBack(t.Context())
	if err != nil || found.Generation.Generation != 1 {
		t.Errorf("%+v, %v", found, err)
	}
}

// A kexec into a kernel whose images are not there yet would end in a loader that
// has to wait for them with nothing to go back to.
func TestImagesComeBeforeTheKexec(t *testing.T) {
	p := publish(t)
	found := p.layer("image")
	found.Overlay.KernelArgs = []string{"another"}
	for _, disk := range []string{"", "/dev/vda1"} {
		p.disk.device = disk
		_, err := p.chooser.prep.prepare(t.Context(), p.ways.source, found)
		if err == nil {
			t.Fatal("a test has entered a kernel")
		}
		image := oci.Digest([]byte("image"))
		if got := p.disk.store.Has(image, int64(len("image"))); got != (disk != "") {
			t.Errorf("disk %q: the image is there before the kexec: %v", disk, got)
		}
	}
}

func TestPatience(t *testing.T) {
	for line, want := range map[string]time.Duration{"": usual.soon, "caisson.patience=180": 3 * time.Minute, "caisson.patience=0": 0,
		"caisson.patience=9999": usual.only, "caisson.patience=long": usual.soon} {
		if got := usual.from(strings.Fields(line)); got.soon != want || got.only >= got.hang {
			t.Errorf("%q: %s, and a start-over after %s", line, got.soon, got.hang)
		}
	}
}
