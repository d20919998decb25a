// SPDX-License-Identifier: Apache-2.0

// [Services] say which images the services of a node are to be at, and have them
// here: those of the overlay, but for what an operator keeps at an earlier image. They
// fetch images, note which ones a service has been at, and say which are still needed
// to go back to. Package items/service puts them in effect.

package stacked

import (
	"slices"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// Services are those of an open node.
type Services struct {
	Root     string // of a test
	Attached bool   // caisson did not boot this host
	Folder   *state.Folder
	Tracker  *track.Tracker                // nil where no key is trusted
	Store    func() (*layers.Store, error) // of the layers of a host that caisson booted
	Log      func(event string, fields ...events.Field)
	Say      func(format string, args ...any)

	unfetched map[string]error // images that could not be had just now, by digest
}

// Effective are the services that this node is to have: those of an overlay, but for
// the ones that an operator keeps at an earlier image. What is kept counts only as far
// as a kept overlay of the node, verified again, has it.
func (sv *Services) Effective(want []spec.Service) []spec.Service {
	if len(want) == 0 {
		return nil
	}
	kept := sv.RememberedServices()
	out := slices.Clone(want)
	var signed signedOverlays
	for i, s := range out {
		held := kept[s.Name].Held
		if held == "" || held == s.Image.Digest {
			continue
		}
		if signed == nil {
			signed = sv.signedOverlays()
		}
		if before, _, ok := signed.service(s.Name, held); ok {
			out[i] = before
		} else {
			sv.Say("service %s was kept at image %s, which no kept overlay has: it follows the overlay", s.Name, held)
		}
	}
	return out
}

// RememberedServices returns the node's records of services. A file that cannot be read
// is one that says nothing: services follow the overlay, and the file is written again.
func (sv *Services) RememberedServices() map[string]state.Service {
	kept, err := sv.Folder.Services()
	if err != nil {
		sv.Say("%v: no service is held", err)
	}
	return kept
}

// signedOverlays are those that are kept and verified, the newest first.
type signedOverlays []*trust.Accepted

func (sv *Services) signedOverlays() signedOverlays {
	if sv.Tracker == nil {
		return nil
	}
	kept, err := sv.Tracker.Kept()
	if err != nil {
		sv.Say("%v", err)
	}
	return kept
}

// service finds a service with an image, and the overlay that has it.
func (all signedOverlays) service(name, image string) (s spec.Service, overlay string, ok bool) {
	for _, a := range all {
		for _, s := range a.Overlay.Services {
			if s.Name == name && s.Image.Digest == image {
				return s, a.Digest, true
			}
		}
	}
	return s, "", false
}

// List says where the services of an overlay stand on this node.
func (sv *Services) List(o *spec.Overlay) []spec.ServiceStatus {
	kept := sv.RememberedServices()
	var out []spec.ServiceStatus
	var signed signedOverlays
	if len(o.Services) > 0 {
		signed = sv.signedOverlays()
	}
	for i, s := range sv.Effective(o.Services) {
		k := kept[s.Name]
		st := spec.ServiceStatus{Name: s.Name, Unit: s.Unit, Commit: s.Commit, Image: s.Image.Digest, Tracking: spec.Following}
		if k.Held != "" {
			st.Tracking, st.Reason, st.Since, st.Published = spec.Frozen, k.Reason, state.Time(k.Since), o.Services[i].Commit
		}
		for _, d := range k.Images {
			if before, _, ok := signed.service(s.Name, d); ok && !slices.Contains(st.Kept, before.Commit) {
				st.Kept = append(st.Kept, before.Commit)
			}
		}
		out = append(out, st)
	}
	return out
}
