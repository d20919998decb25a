// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"testing"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// aheadOf publishes generation 2 of another layer, which is signed for the good one, too,
// and proved itself there while its own waited.
func aheadOf(t *testing.T, signed bool) (p *published, good, next string) {
	t.Helper()
	p = publish(t)
	good, next = p.layer("good").Overlay.Layer, p.layer("next").Overlay.Layer
	p.overlay(1, good)
	p.boots()
	p.comesUp()
	said := sign.Predicate{Generation: 2}
	if signed {
		said.RunsOn = []string{good}
	}
	p.Overlay(spec.Overlay{Core: spec.Core{Layer: next}}, said)
	if _, err := p.ways.follower().Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := p.disk.folder.Load()
	if err != nil {
		t.Fatal(err)
	}
	ahead := *s.Staged
	ahead.Layer, ahead.Waits = good, next
	s.Prove(ahead)
	if err := p.disk.folder.Save(s); err != nil {
		t.Fatal(err)
	}
	return p, good, next
}

// A waiting layer that never comes up ends in the newest overlay on the layer before, and
// so does a boot without network. That boot is not an attempt of the pair that failed.
func TestTheNewestOverlayOnTheLayerBefore(t *testing.T) {
	p, good, next := aheadOf(t, true)
	for range state.MaxAttempts {
		p.attempt.unproven = false
		if got := p.boots(); got != 2 || p.notes.of.Layer != next || !p.attempt.unproven {
			t.Fatalf("generation %d on %s, unproven %v; want the layer that waits", got, p.notes.of.Layer, p.attempt.unproven)
		}
	}
	source := p.ways.source
	for _, offline := range []bool{false, true, false} {
		p.attempt.unproven, p.ways.source = false, source
		if offline {
			p.ways.source = nil
			_, root, err := p.chooser.fallBack(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			p.choice = &choice{prepared: root}
			p.begin()
		} else if got := p.boots(); got != 2 {
			t.Fatalf("generation %d", got)
		}
		if g := p.notes.of; g.Generation != 2 || g.Layer != good || g.Waits != next || p.attempt.unproven || p.choice.layer.Images[0].Size != int64(len("good")) {
			t.Errorf("offline %v: %+v, unproven %v", offline, g, p.attempt.unproven)
		}
	}
	s, err := p.disk.folder.Load()
	if err != nil || s.Staged.Attempts != state.MaxAttempts {
		t.Errorf("%d attempts are counted (%v)", s.Staged.Attempts, err)
	}
}

// A state that pairs an overlay with a layer that it is not signed for boots the pair
// before.
func TestAPairThatNobodySigned(t *testing.T) {
	p, good, _ := aheadOf(t, false)
	p.ways.source = nil
	found, _, err := p.chooser.fallBack(t.Context())
	if err != nil || found.Generation.Generation != 1 || found.Generation.Layer != good {
		t.Errorf("%+v, %v", found, err)
	}
}
