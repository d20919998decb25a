// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// tally is a registry that counts how often each blob is asked for.
type tally struct {
	oci.Source
	blobs map[string]int
}

func (s *tally) Blob(ctx context.Context, repo string, d oci.Descriptor, offset int64) (io.ReadCloser, error) {
	s.blobs[d.Digest]++
	return s.Source.Blob(ctx, repo, d, offset)
}

// counts has the node ask a registry that counts.
func (p *published) counts() *tally {
	s := &tally{p.ways.source, map[string]int{}}
	p.ways.source = s
	return s
}

// hasMemory sets the memory that the machine's kernel reports, in bytes.
func (p *published) hasMemory(total, available int64) {
	p.t.Helper()
	if p.machine.proc == "" {
		p.machine.proc = p.t.TempDir()
	}
	text := fmt.Sprintf("MemTotal: %d kB\nMemFree: 1 kB\nMemAvailable: %d kB\n", total>>10, available>>10)
	if err := os.WriteFile(filepath.Join(p.machine.proc, "meminfo"), []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// A diskless node into whose memory the images do not go fetches none of them. It says how
// much it needs, on its console and to the fleet's service, and boots when the layer fits.
func TestTooLittleMemory(t *testing.T) {
	p := publish(t)
	var said bytes.Buffer
	p.console = screen.Console{W: &said}
	p.machine.limits.pause, p.machine.limits.hint = time.Millisecond, time.Hour
	p.machine.bootstrap.Hints, p.ways.lease = "https://fleet.example", &record.Lease{}
	p.hasMemory(500<<20, stage.ForStart-1<<20)
	p.overlay(1, p.layer("image").Overlay.Layer)
	image := oci.Digest([]byte("image"))
	asked := p.counts()
	var hint spec.Hint
	p.chooser.help.tell = func(_ context.Context, _ spec.Bootstrap, _ track.Way, body []byte) (err error) {
		if asked.blobs[image] != 0 {
			t.Error("the image was asked for")
		}
		hint, err = spec.DecodeHint(body)
		p.hasMemory(500<<20, stage.ForStart+1<<20)
		return err
	}
	var asksMedium bool
	gathered := p.chooser.decided
	p.chooser.decided = func(f *decide.Facts, s decide.Step) {
		asksMedium = asksMedium || s.Act == decide.AskMedium
		if gathered != nil {
			gathered(f, s)
		}
	}
	if _, err := p.chooser.choose(t.Context()); err != nil {
		t.Fatal(err)
	}
	if asksMedium {
		t.Error("the registry answered, and is taken for one that does not")
	}
	const needs = "this machine needs 510 MiB, and it has 500"
	if !strings.Contains(hint.Why, needs) || asked.blobs[image] != 1 {
		t.Errorf("hint %q, the image was asked for %d times", hint.Why, asked.blobs[image])
	}
	for _, want := range []string{"behind: too little memory", "THIS NODE DOES NOT COME UP: it has too little memory", needs, "give it 10 MiB more", "no state disk, so nothing that ran before is known"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("%q is missing in\n%s", want, said.String())
		}
	}
}

// Arguments can take so much memory that nothing is left for a layer, whichever is published
// next: a loader behind a kexec starts over, and the one before it has what the machine has.
func TestTooLittleMemoryBehindAKexec(t *testing.T) {
	p := publish(t)
	p.machine.words = []string{spec.KexecMarker, kernel.KexecCounted + "sha256:01"}
	p.machine.limits.only, p.machine.limits.pause = 30*time.Millisecond, 10*time.Millisecond
	p.hasMemory(500<<20, stage.ForStart-1<<20)
	p.overlay(1, p.layer("image").Overlay.Layer)
	if _, err := p.chooser.choose(t.Context()); !errors.Is(err, errStartOver) {
		t.Error(err)
	}
}

// What a disk takes, or what is in memory, needs no room there.
func TestEnoughMemory(t *testing.T) {
	p := publish(t)
	p.hasMemory(500<<20, stage.ForStart+1<<20)
	found := p.layer("image")
	p.prepared(found)
	p.hasMemory(500<<20, 0)
	p.prepared(found)
	p.disk.device = "/dev/vda1"
	p.prepared(p.layer("another image"))
	p.disk.device, p.disk.readOnly = "/dev/vda1", fmt.Errorf("read-only: %w", os.ErrPermission)
	if _, err := p.chooser.prep.prepare(t.Context(), p.ways.source, p.layer("a third image")); err == nil {
		t.Error("a disk that takes no writes took an image")
	}
}

// The kernel and the initrd that run are not fetched, and those of a kexec once: not behind
// it, and not where a disk has kept them.
func TestHowOftenAKernelIsFetched(t *testing.T) {
	for _, disk := range []string{"", "/dev/vda1"} {
		p := publish(t)
		p.disk.device, p.machine.id = disk, trust.Identity{}
		found := p.layer("image")
		asked := p.counts()
		kernel := oci.Digest([]byte("kernel of image"))
		fetched := func(when string, want int) {
			t.Helper()
			if got := asked.blobs[kernel]; got != want {
				t.Errorf("disk %q: %s the kernel was asked for %d times, want %d", disk, when, got, want)
			}
		}
		p.prepared(found)
		if disk == "" {
			fetched("for a boot without a kexec", 0)
		} else {
			fetched("to be kept", 1) // once: kernel and initrd are one blob here
		}
		found.Overlay.KernelArgs = []string{"quiet"}
		for range 2 { // the bootstrap that it would be given is not there
			if _, err := p.chooser.prep.prepare(t.Context(), p.ways.source, found); err == nil {
				t.Fatal("no kexec")
			}
		}
		fetched("for a kexec", 1)
		p.machine.words = []string{"quiet", "caisson.kexec=1"}
		if disk == "" { // memory forgets
			p.disk.store = publish(t).disk.store
		}
		p.prepared(found)
		fetched("behind the kexec", 1)
	}
}
