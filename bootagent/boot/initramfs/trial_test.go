// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/oci/sign"
)

// TestTrial: a loader on trial that refuses what there is, and has nothing else, gives up when
// its time is over. One that finds what ran well has decided.
func TestTrial(t *testing.T) {
	p := publish(t)
	p.overlay(1, p.layer("good").Overlay.Layer)
	p.boots()
	p.comesUp()
	own := p.machine.bootstrap.Keys
	stranger, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	p.machine.limits.pause, p.machine.trial = time.Millisecond, time.Now().Add(-time.Hour)
	p.machine.bootstrap.Keys = []string{string(sign.VerifierOf(stranger).PEM())}
	if _, err := p.chooser.choose(t.Context()); err == nil || !strings.Contains(err.Error(), "this loader is on trial and has found nothing to boot within") {
		t.Errorf("a loader that refuses everything: %v", err)
	}
	p.machine.bootstrap.Keys = own
	p.overlay(2, "sha256:"+strings.Repeat("0", 64)) // which is nowhere
	if _, err := p.chooser.choose(t.Context()); err != nil || p.notes.of.Generation != 1 {
		t.Errorf("generation %d, %v; generation 1 ran well", p.notes.of.Generation, err)
	}
}
