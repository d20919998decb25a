// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"fmt"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// TestADocumentIsReadOnce: a publisher decides for each of its nodes, and most of that is reading.
func TestADocumentIsReadOnce(t *testing.T) {
	o := spec.Overlay{Core: spec.Core{APIVersion: spec.APIVersion, Kind: spec.KindOverlay, Fleet: "metal-a", Node: "n0"}}
	for i := range 60 {
		o.Items.Sysctl = append(o.Items.Sysctl, spec.Sysctl{Key: fmt.Sprintf("net/ipv4/conf/eth%d/forwarding", i), Value: "1"})
	}
	doc, err := spec.Encode(o)
	if err != nil {
		t.Fatal(err)
	}
	once := testing.AllocsPerRun(10, func() {
		var o spec.Overlay
		if _, err := spec.DecodeKnown(doc, &o); err != nil {
			t.Error(err)
		}
	})
	decided := testing.AllocsPerRun(10, func() {
		d := &decision{candidate: Candidate{Document: doc}}
		for _, c := range overlayChecks {
			if c.Name == "document" || c.Name == "needs" || c.Name == "sections" {
				if err := c.OK(d); err != nil {
					t.Error(err)
				}
			}
		}
		if len(d.overlay.Items.Sysctl) != 60 {
			t.Errorf("%d items", len(d.overlay.Items.Sysctl))
		}
	})
	if decided > once*1.2 {
		t.Errorf("%.0f allocations, and %.0f where it is read once", decided, once)
	}
}
