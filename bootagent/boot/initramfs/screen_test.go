// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/tell/screen"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// A loader whose registry is dead, and that has nothing to fall back on, says so in
// words before each further try, with the time of the next.
func TestTheFailureScreen(t *testing.T) {
	p := publish(t)
	said, begun := new(talk), time.Now()
	p.console = screen.Console{W: writerFunc(func(text string) {
		_, _ = said.Write([]byte(text))                                                           // of memory: it does not fail
		if strings.Contains(said.String(), "in 80ms, at ") || time.Since(begun) > 2*time.Minute { // within the time that a test has
			p.machine.limits.only = 0 // which ends the trying
		}
	})}
	p.ways.lease = &record.Lease{Address: netip.MustParsePrefix("10.0.2.15/24")}
	p.overlay(1, p.layer("image").Overlay.Layer)
	p.machine.id = trust.Identity{MACs: []string{"52:54:00:00:00:01"}}
	p.machine.bootstrap.Registry = "10.0.2.2:5000/metal-a"
	p.ways.source = &cord{Source: p.ways.source, pulled: true}
	p.machine.words = []string{spec.KexecMarker} // behind which a loader does not try for ever
	p.machine.limits.pause = 40 * time.Millisecond
	if _, err := p.chooser.choose(t.Context()); !errors.Is(err, errStartOver) {
		t.Fatal(err)
	}
	text := said.String()
	for _, want := range []string{"<3>caisson: THIS NODE DOES NOT COME UP: the registry does not answer as it should", "registry 10.0.2.2:5000/metal-a, as MAC 52:54:00:00:00:01, from 10.0.2.15/24; try 1,", "try 2,", "network is unreachable",
		"there is no state disk", "it tries again in 40ms, at ", "it tries again in 80ms, at "} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
}
