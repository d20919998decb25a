// SPDX-License-Identifier: Apache-2.0

// Package nextroot knows how a node gets to another layer: by a soft-reboot where only
// what runs starts again, see systemd-soft-reboot.service(8), and else by a reboot.
//
// The kernel goes on, and with it its values, the boot id and the files below /run.
// Every mount of the old root ends: the next root has its own of the images, of the
// state disk and of persisted directories, made by the code that the loader uses. Only
// bootagent/node/destination imports it.
package nextroot

import (
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// Pair is an overlay on a layer: what a root is made of.
type Pair struct {
	Generation state.Generation
	Overlay    *spec.Overlay
	Layer      *spec.Layer
}

// Class says how a node that runs an overlay on the root of a record gets to the root of a
// pair with another layer, and why it is not less.
func Class(boot *state.Boot, running *spec.Overlay, to Pair) (class, why string) {
	class, why = spec.RootMove(&boot.Layer, to.Layer)
	for _, e := range spec.Changes(running, to.Overlay) {
		if e.Part != spec.PartLayer && spec.Worse(e.Class, class) {
			class, why = e.Class, e.Why
		}
	}
	switch {
	case class != spec.ClassSoftReboot:
	case boot.ReadOnly:
		return spec.ClassReboot, "the state disk can only be read: no attempt can be counted"
	case to.Generation.Attempts > 0:
		return spec.ClassReboot, "it was begun before, and did not come up"
	}
	return class, why
}
