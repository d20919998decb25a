// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/kernel"
	"github.com/caisson-os/caisson/bootagent/fetch/stage"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/test/fixture"
)

// overlay signs and pushes one that names the layer.
func (p *published) overlay(generation uint64, layer string) {
	p.t.Helper()
	p.machine.id = trust.Identity{Node: fixture.Node}
	b := p.Bootstrap()
	p.machine.bootstrap.Keys, p.machine.bootstrap.Threshold = b.Keys, b.Threshold
	p.Overlay(spec.Overlay{Core: spec.Core{Layer: layer}}, sign.Predicate{Generation: generation})
}

// boots chooses, begins, and says which generation that was.
func (p *published) boots() uint64 {
	p.t.Helper()
	var err error
	if p.choice, err = p.chooser.choose(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	p.begin()
	return p.choice.generation.Generation
}

func (p *published) begin() { p.attempt.begin(p.notes.of, p.ways.heard) }

func (p *published) comesUp() {
	p.t.Helper()
	s, err := p.disk.folder.Load()
	if err != nil {
		p.t.Fatal(err)
	}
	s.Promote()
	if err := p.disk.folder.Save(s); err != nil {
		p.t.Fatal(err)
	}
}

// What the registry had when the machine started is in the boot's record, from the loader on: a
// node without a disk starts over by itself into nothing that it had then, and into what came
// before its service first asks.
func TestTheRecordHasWhatTheRegistryHad(t *testing.T) {
	p := publish(t)
	p.overlay(1, p.layer("one").Overlay.Layer)
	p.boots()
	first := p.begunRecord().Live.Had
	p.overlay(2, p.layer("two").Overlay.Layer)
	p.boots()
	if second := p.begunRecord().Live; first == "" || second.Had == "" || second.Had == first || second.Began != second.Had {
		t.Errorf("it had %q, then %+v", first, second)
	}
}

// A generation that takes the node down each time must not do so for ever.
func TestAGenerationThatNeverComesUp(t *testing.T) {
	p := publish(t)
	p.overlay(1, p.layer("good").Overlay.Layer)
	for range state.MaxAttempts + 1 {
		if got := p.boots(); got != 1 {
			t.Fatalf("generation %d; there is no other than 1", got)
		}
	}
	p.comesUp()
	p.overlay(2, p.layer("bad").Overlay.Layer)
	for n := range state.MaxAttempts {
		if got := p.boots(); got != 2 {
			t.Fatalf("attempt %d boots generation %d", n, got)
		}
	}
	if got := p.boots(); got != 1 || p.choice.sync != "behind" || p.choice.source != "cached" {
		t.Errorf("then generation %d, %s, %s; want the good one", got, p.choice.sync, p.choice.source)
	}
	p.overlay(3, p.layer("mended").Overlay.Layer)
	if got := p.boots(); got != 3 {
		t.Errorf("generation %d, though 3 is there", got)
	}
}

// A disk that takes no writes counts no attempts: what was never tried could take the node down
// each time.
func TestNothingNewOnAReadOnlyDisk(t *testing.T) {
	p := publish(t)
	p.disk.device = "/dev/vda1"
	p.overlay(1, p.layer("good").Overlay.Layer)
	p.boots()
	p.comesUp()
	p.overlay(2, p.layer("new").Overlay.Layer)
	p.disk.readOnly = errors.New("it is mounted read-only")
	if got := p.boots(); got != 1 || p.choice.sync != spec.SyncBehind || !strings.Contains(p.choice.detail, "an attempt could not be counted") {
		t.Errorf("generation %d, %s: %s; want the good one", got, p.choice.sync, p.choice.detail)
	}
}

// The last attempt is a whole one: the loader behind its kexec goes on with what the
// first one has begun. It would run the last good generation under the kernel
// arguments of the bad one, else, and nothing ends a good generation.
// A first loader that has given that one up, and enters the kernel of the good one,
// has the second one do the same.
func TestTheLastAttemptBehindItsKexec(t *testing.T) {
	for name, behind := range map[string]func(*published) []string{
		"this release": func(p *published) []string {
			return []string{spec.KexecMarker, p.attempt.counted(p.notes.of.Overlay)}
		},
		"one before": func(*published) []string { return []string{spec.KexecMarker} },
	} {
		t.Run(name, func(t *testing.T) {
			p := publish(t)
			p.overlay(1, p.layer("good").Overlay.Layer)
			p.boots()
			p.comesUp()
			p.overlay(2, p.layer("bad").Overlay.Layer)
			for n := range state.MaxAttempts {
				p.machine.words, p.attempt.unproven = nil, false
				p.boots() // and enters the kernel of generation 2
				p.machine.words, p.attempt.unproven = behind(p), false
				if got := p.boots(); got != 2 || !p.attempt.unproven {
					t.Errorf("attempt %d: generation %d behind a kexec for 2, unproven %v", n+1, got, p.attempt.unproven)
				}
				if s, err := p.disk.folder.Load(); err != nil || s.Staged.Attempts != n+1 {
					t.Errorf("attempt %d is counted as %d (%v)", n+1, s.Staged.Attempts, err)
				}
			}
			p.machine.words, p.attempt.unproven = nil, false
			if got := p.boots(); got != 1 {
				t.Errorf("then generation %d; want the good one", got)
			}
			if name == "one before" {
				return // it cannot say that it entered the good one
			}
			p.machine.words, p.attempt.unproven = behind(p), false
			if got := p.boots(); got != 1 {
				t.Errorf("behind the kexec for the good one generation %d is begun once more", got)
			}
		})
	}
}

// The layer of the last good overlay rotted and there is no network.
func TestTheLayerBeforeWhereTheLastRotted(t *testing.T) {
	p := publish(t)
	for generation, image := range []string{"old", "new"} {
		p.overlay(uint64(generation+1), p.layer(image).Overlay.Layer)
		p.boots()
		p.comesUp()
	}
	if err := os.WriteFile(p.disk.store.Path(p.choice.layer.Images[0].Digest), []byte("rot"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.ways.source = nil
	found, root, err := p.chooser.fallBack(t.Context())
	if err != nil || found.Generation.Generation != 1 || root.layer.Images[0].Digest != oci.Digest([]byte("old")) {
		t.Errorf("%+v, %v", found, err)
	}
}

// A name from DHCP is tried last, and remembered for a boot without DHCP.
func TestTheNameThatDHCPGave(t *testing.T) {
	p := publish(t)
	p.overlay(1, p.layer("image").Overlay.Layer)
	p.machine.id = trust.Identity{MACs: []string{"52:54:00:00:00:01"}}
	p.ways.lease = &record.Lease{HostName: "SuperHost"}
	p.boots()
	p.comesUp()
	p.ways.lease, p.ways.source = nil, nil
	if found, _, err := p.chooser.fallBack(t.Context()); err != nil || found.Overlay.Node != "superhost" {
		t.Errorf("without DHCP: %+v, %v", found, err)
	}
}

// Only an attempt that is counted may be ended by a deadline: another would be
// started over for ever.
func TestOnlyACountedBootHasADeadline(t *testing.T) {
	p := publish(t)
	p.overlay(1, p.layer("image").Overlay.Layer)
	if p.boots(); !p.attempt.unproven {
		t.Error("a new generation has all the time in the world")
	}
	p.comesUp()
	p.attempt.unproven = false
	if p.boots(); p.attempt.unproven {
		t.Error("a good generation has a deadline")
	}
	p.overlay(2, p.layer("other").Overlay.Layer)
	if _, err := p.chooser.choose(t.Context()); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(p.disk.folder.Path("state*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if err := errors.Join(os.Remove(file), os.Mkdir(file, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	if p.begin(); p.attempt.unproven {
		t.Error("a boot that could not be counted has a deadline")
	}
}

// cord is a registry that a loader reaches unless it is pulled.
type cord struct {
	oci.Source
	pulled bool
}

func (c *cord) Manifest(ctx context.Context, repo, tag, etag string) (oci.Response, error) {
	if c.pulled {
		return oci.Response{}, errors.New("network is unreachable")
	}
	return c.Source.Manifest(ctx, repo, tag, etag)
}

// The kernel arguments of a new generation keep its loader from the network. What ran
// well before is not run under them: the machine starts over without them, each time
// an attempt, until the loader before the kexec gives the generation up.
func TestArgumentsThatLoseTheNetwork(t *testing.T) {
	p := publish(t)
	line := &cord{Source: p.ways.source}
	p.ways.source = line
	p.disk.device = "/dev/vda1"
	p.overlay(1, p.layer("good").Overlay.Layer)
	p.boots()
	p.comesUp()
	p.Overlay(spec.Overlay{Core: spec.Core{Layer: p.layer("good").Overlay.Layer, KernelArgs: []string{"virtio_net.napi_tx=0"}}}, sign.Predicate{Generation: 2})
	for n := range state.MaxAttempts {
		line.pulled, p.machine.words, p.attempt.unproven = false, nil, false
		found, err := p.chooser.ask(t.Context())
		if err != nil {
			t.Fatalf("attempt %d: %v", n+1, err)
		}
		p.notes.of = found.Generation
		p.begin() // and enters the kernel of generation 2
		line.pulled, p.machine.words, p.attempt.unproven = true, []string{spec.KexecMarker, p.attempt.counted(p.notes.of.Overlay), "virtio_net.napi_tx=0"}, false
		if _, err := p.chooser.choose(t.Context()); !errors.Is(err, errStartOver) {
			t.Fatalf("attempt %d: generation %d runs under the arguments of 2: %v", n+1, p.notes.of.Generation, err)
		}
	}
	line.pulled, p.machine.words, p.attempt.unproven = false, nil, false
	if got := p.boots(); got != 1 || p.choice.sync != spec.SyncBehind {
		t.Errorf("then generation %d, %s; want the good one", got, p.choice.sync)
	}
}

// The same without anything to fall back on: behind a kexec the loader starts over after
// a while in which it reached nothing. The loader before it waits for ever, since other
// arguments would not help; so does one whose registry answers.
func TestALoaderBehindAKexecStartsOver(t *testing.T) {
	p := publish(t)
	p.overlay(1, p.layer("image").Overlay.Layer)
	line := &cord{Source: p.ways.source, pulled: true}
	p.ways.source = line
	p.machine.words = []string{spec.KexecMarker, kernel.KexecCounted + "sha256:01"}
	p.machine.limits.only, p.machine.limits.pause = 30*time.Millisecond, 10*time.Millisecond
	if _, err := p.chooser.choose(t.Context()); !errors.Is(err, errStartOver) {
		t.Errorf("behind a kexec: %v", err)
	}
	for err, want := range map[error]bool{nil: true, errors.New("refused"): false, oci.ErrNotFound: true, refusal.New(refusal.Signature, "x"): true,
		fmt.Errorf("generation 2: %w 10m0s", errSlow): true, &stage.TooLittle{}: true} {
		if reached(err) != want {
			t.Errorf("%v: reached is %v", err, !want)
		}
	}
}
