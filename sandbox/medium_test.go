// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// The road is what was asked for, and what the layer and the site make of it.
func TestRoad(t *testing.T) {
	for _, c := range []struct {
		o        Options
		programs bool // for UEFI, in the layer
		edits    []string
		want     string
	}{
		{Options{}, true, nil, "kernel"},
		{Options{ISO: true}, true, nil, "cd"},
		{Options{ISO: true, Disk: true}, true, nil, "cd"},
		{Options{Disk: true}, true, nil, "disk"},
		{Options{Disk: true}, false, nil, "kernel"},
		{Options{Disk: true}, true, []string{"args: [quiet]}", "args: [quiet]}, stateDisk: {create: true}"}, "kernel"},
	} {
		b := &Box{site: newSite(c.edits...), o: c.o}
		if c.programs {
			b.layer.UEFI = &spec.UEFI{}
		}
		if got := b.Road(); got != c.want {
			t.Errorf("%+v, programs %v: by %s, want %s", c.o, c.programs, got, c.want)
		}
	}
}
