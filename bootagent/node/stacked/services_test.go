// SPDX-License-Identifier: Apache-2.0

package stacked

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
)

func image(n int) string { return oci.Digest([]byte(fmt.Sprint(n))) }

// serving are the services of a host that is attached, and what accepts overlays for it in which
// service x is at the image of a number.
func serving(t *testing.T) (*Services, func(n int) *spec.Overlay) {
	t.Helper()
	root := t.TempDir()
	folder, err := state.Open(root + "/state")
	if err != nil {
		t.Fatal(err)
	}
	f := fixture.NewFleet(t)
	tracker := &track.Tracker{Source: f.Registry.Source(), Bootstrap: f.Bootstrap(), Identity: trust.Identity{Node: fixture.Node}, Folder: folder, Say: t.Logf}
	sv := &Services{Root: root, Attached: true, Folder: folder, Tracker: tracker, Say: t.Logf, Log: func(string, ...events.Field) {}}
	return sv, func(n int) *spec.Overlay {
		t.Helper()
		o := spec.Overlay{Core: spec.Core{Layer: oci.Digest(nil)}, Services: []spec.Service{{Name: "x", Unit: "x.service", Commit: fmt.Sprint(n), Image: spec.Blob{Digest: image(n), Size: 1}}}}
		f.Overlay(o, sign.Predicate{Generation: uint64(n)})
		f.Current(spec.Fleet{}, fixture.Now())
		found, err := tracker.Sync(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sv.Note(&found.Overlay)
		return &found.Overlay
	}
}

// A service is held at an image that a signed overlay has, and follows again.
func TestAServiceIsHeld(t *testing.T) {
	sv, accept := serving(t)
	accept(1)
	o := accept(2)
	for _, c := range []struct {
		say      func() (spec.ServiceStatus, error)
		tracking spec.Tracking
		at       int
	}{
		{func() (spec.ServiceStatus, error) { return sv.Freeze(o, "x", "it is new") }, spec.Frozen, 2},
		{func() (spec.ServiceStatus, error) { return sv.Rollback(o, "x", "") }, spec.Frozen, 1},
		{func() (spec.ServiceStatus, error) { return sv.Forward(o, "x") }, spec.Following, 2},
	} {
		st, err := c.say()
		if err != nil || st.Tracking != c.tracking || st.Image != image(c.at) || sv.Effective(o.Services)[0].Image.Digest != image(c.at) || !slices.Equal(st.Kept, []string{"2", "1"}) {
			t.Errorf("%+v, %v; want %s at %d", st, err, c.tracking, c.at)
		}
	}
	if _, err := sv.Freeze(o, "y", ""); err == nil {
		t.Error("an unknown service is held")
	}
	if _, err := sv.Rollback(&spec.Overlay{Services: o.Services[:0]}, "x", ""); err == nil {
		t.Error("a service that is gone is held")
	}
}

// What a node remembers proves nothing: an image that no signed overlay has is not gone back to.
func TestAnImageThatNobodySigned(t *testing.T) {
	sv, accept := serving(t)
	o := accept(1)
	if err := sv.Folder.SaveServices(map[string]state.Service{"x": {Images: []string{image(1), image(9)}, Held: image(9)}}); err != nil {
		t.Fatal(err)
	}
	if at := sv.Effective(o.Services)[0].Image.Digest; at != image(1) {
		t.Errorf("it is at %s", at)
	}
	if _, err := sv.Rollback(o, "x", ""); err == nil {
		t.Error("it goes back to what nobody signed")
	}
}

// Three images of a service are kept, those that are in effect or signed, and none of one that
// is gone.
func TestWhatIsKept(t *testing.T) {
	sv, accept := serving(t)
	var o *spec.Overlay
	for n := range 5 {
		o = accept(n + 1)
	}
	if got := sv.RememberedServices()["x"].Images; !slices.Equal(got, []string{image(5), image(4), image(3)}) {
		t.Errorf("%q", got)
	}
	if len(sv.Serving()) == 0 {
		t.Error("no overlay is kept for it")
	}
	keep := map[string]bool{}
	sv.Keep(keep)
	if got := slices.Sorted(maps.Keys(keep)); !keep[image(3)] || keep[image(1)] {
		t.Errorf("%q", got)
	}
	gone := *o
	gone.Services = nil
	if sv.Note(&gone); len(sv.RememberedServices()) != 0 || sv.Serving() != nil {
		t.Errorf("%+v", sv.RememberedServices())
	}
}

// An image that could not be had says why until the next look.
func TestAnImageThatIsNotThere(t *testing.T) {
	sv, accept := serving(t)
	o := accept(1)
	if err := sv.Images().Ready(o.Services[0].Image); err == nil {
		t.Error("it is here before it was fetched")
	}
	sv.Bring(t.Context(), o)
	before := sv.Images().Ready(o.Services[0].Image)
	if before == nil || sv.Images().Mount(o.Services[0].Image, t.TempDir()) == nil {
		t.Errorf("%v", before)
	}
	sv.Attached, sv.Store = false, func() (*layers.Store, error) { return layers.OpenStore(t.TempDir()) }
	sv.Bring(t.Context(), new(spec.Overlay))
	if err := sv.Images().Ready(o.Services[0].Image); err == nil || err.Error() == before.Error() {
		t.Errorf("%v, and before %v", err, before)
	}
}
