// SPDX-License-Identifier: Apache-2.0

// [Services] say which images the services of a node are to be at, and have them
// here: those of the overlay, but for what an operator keeps at an earlier image. They
// fetch images, note which ones a service has been at, and say which are still needed
// to go back to. Package items/service puts them in effect.

package stacked

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch/download"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
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
	fault.Say(sv.Say, err)
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

// serviceStore is where images of services are kept: also on a host that caisson did
// not boot they outlive a reboot.
func (sv *Services) serviceStore() (*layers.Store, error) {
	if sv.Attached {
		return layers.OpenStore(sv.Folder.Path("store"))
	}
	return sv.Store()
}

// Images gives the item what was fetched.
func (sv *Services) Images() service.Images { return &fetched{sv} }

type fetched struct{ n *Services }

// Ready implements service.Images.
func (f *fetched) Ready(image spec.Blob) error {
	store, err := f.n.serviceStore()
	if err != nil {
		return err
	}
	if store.Has(image.Digest, image.Size) {
		return nil
	}
	if err := f.n.unfetched[image.Digest]; err != nil {
		return err
	}
	return errors.New("it is fetched with the next look at the registry")
}

// Mount implements service.Images. What the disk holds is compared first.
func (f *fetched) Mount(image spec.Blob, at string) error {
	store, err := f.n.serviceStore()
	if err != nil {
		return err
	}
	if err := store.Verify(image.Digest); err != nil {
		return err
	}
	return layers.Image{Path: store.Path(image.Digest), Type: oci.TypeSquashfs}.Mount(at)
}

// Bring fetches the images of services that the node lacks. What cannot be had now is
// tried again in the next run; the node goes on with what it has.
func (sv *Services) Bring(ctx context.Context, o *spec.Overlay) {
	sv.unfetched = map[string]error{}
	want := sv.Effective(o.Services)
	if len(want) == 0 || sv.Tracker == nil {
		return
	}
	store, err := sv.serviceStore()
	if err != nil {
		sv.Say("%v", err)
		return
	}
	ctx, end := context.WithTimeout(ctx, download.FetchTime)
	defer end()
	for _, s := range want {
		if store.Has(s.Image.Digest, s.Image.Size) {
			continue
		}
		from := download.Download{Source: sv.Tracker.Source, Repo: oci.RepoService, Store: store}
		if err := from.Blob(ctx, oci.Descriptor{MediaType: oci.TypeSquashfs, Digest: s.Image.Digest, Size: s.Image.Size}, nil); err != nil {
			sv.unfetched[s.Image.Digest] = err
			sv.Say("service %s: %v", s.Name, err)
			continue
		}
		sv.Say("service %s: fetched commit %s", s.Name, s.Commit)
	}
}

// Note is [Node.serve] where what goes wrong is not a reason to stop.
func (sv *Services) Note(o *spec.Overlay) {
	fault.Say(sv.Say, fault.In(sv.serve(o), "services"))
}

// serve notes which images services have been at, once they are in effect, and frees
// those that nobody will go back to.
func (sv *Services) serve(o *spec.Overlay) error {
	kept := sv.RememberedServices()
	before := len(kept)
	changed := false
	for name := range kept {
		if !slices.ContainsFunc(o.Services, func(s spec.Service) bool { return s.Name == name }) {
			delete(kept, name) // the service is gone, and what it was kept at with it
			changed = true
		}
	}
	for _, s := range o.Services {
		k := kept[s.Name]
		if k.Held != "" || len(k.Images) > 0 && k.Images[0] == s.Image.Digest {
			continue
		}
		k.Images = slices.Insert(slices.DeleteFunc(slices.Clone(k.Images), func(d string) bool { return d == s.Image.Digest }), 0, s.Image.Digest)
		k.Images = k.Images[:min(len(k.Images), keptImages)]
		kept[s.Name], changed = k, true
	}
	if changed {
		if err := sv.Folder.SaveServices(kept); err != nil {
			return err
		}
	}
	if before+len(o.Services) == 0 {
		return nil
	}
	return errors.Join(service.Tidy(service.Places{Root: sv.Root, Run: filepath.Join(sv.Root, paths.RunServices)}),
		sv.collectServices(changed))
}

// keptImages is how many images of a service a node keeps: the present one and two to
// go back to.
const keptImages = 3

// collectServices frees images of an attached host; on others that is a part of
// [Node.collect].
func (sv *Services) collectServices(changed bool) error {
	if !changed || !sv.Attached {
		return nil
	}
	store, err := sv.serviceStore()
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	sv.Keep(keep)
	_, err = store.Collect(keep)
	return err
}

// Keep adds the images that services are at, or may go back to.
func (sv *Services) Keep(keep map[string]bool) {
	for _, k := range sv.RememberedServices() {
		keep[k.Held] = true
		for _, d := range k.Images {
			keep[d] = true
		}
	}
	all := sv.signedOverlays() // what waits, and what a change may be taken back to
	for _, a := range all[:min(len(all), keptImages)] {
		for _, s := range a.Overlay.Services {
			keep[s.Image.Digest] = true
		}
	}
}

// Serving returns the digests of the overlays that say what services may go back to.
func (sv *Services) Serving() []string {
	kept := sv.RememberedServices()
	if len(kept) == 0 {
		return nil
	}
	all := sv.signedOverlays()
	var digests []string
	for name, k := range kept {
		for _, image := range append(slices.Clone(k.Images), k.Held) {
			if _, overlay, ok := all.service(name, image); ok { // the newest that has it is enough
				digests = append(digests, overlay)
			}
		}
	}
	return digests
}

// Freeze keeps a service of an overlay at the image that it has, for a reason that may be
// empty.
func (sv *Services) Freeze(o *spec.Overlay, name, reason string) (spec.ServiceStatus, error) {
	return sv.change(o, name, func(at spec.Service, k *state.Service) error {
		k.Held, k.Reason, k.Since = at.Image.Digest, reason, time.Now().Unix()
		return nil
	})
}

// Rollback keeps a service at the image that it had before. The service acts with the next
// run.
func (sv *Services) Rollback(o *spec.Overlay, name, reason string) (spec.ServiceStatus, error) {
	return sv.change(o, name, func(at spec.Service, k *state.Service) error {
		to, err := sv.imageBefore(at, k.Images)
		if err != nil {
			return err
		}
		k.Held, k.Reason, k.Since = to, reason, time.Now().Unix()
		return nil
	})
}

// Forward has a service follow its overlay again.
func (sv *Services) Forward(o *spec.Overlay, name string) (spec.ServiceStatus, error) {
	return sv.change(o, name, func(_ spec.Service, k *state.Service) error {
		k.Held, k.Reason, k.Since = "", "", 0
		return nil
	})
}

// change changes what is remembered of a service, and returns where it stands then.
func (sv *Services) change(o *spec.Overlay, name string, change func(spec.Service, *state.Service) error) (spec.ServiceStatus, error) {
	all := sv.Effective(o.Services)
	i := slices.IndexFunc(all, func(s spec.Service) bool { return s.Name == name })
	if i < 0 {
		return spec.ServiceStatus{}, fmt.Errorf("this node has no service %q", name)
	}
	kept := sv.RememberedServices()
	k := kept[name]
	if err := change(all[i], &k); err != nil {
		return spec.ServiceStatus{}, err
	}
	kept[name] = k
	if err := sv.Folder.SaveServices(kept); err != nil {
		return spec.ServiceStatus{}, err
	}
	st := sv.List(o)[i]
	sv.Log("service", events.With("service", name), events.With("tracking", st.Tracking),
		events.With("commit", st.Commit), events.With("why", k.Reason))
	return st, nil
}

// imageBefore is the image that a service had before the one that it is at.
func (sv *Services) imageBefore(at spec.Service, images []string) (string, error) {
	signed := sv.signedOverlays()
	for _, d := range images[slices.Index(images, at.Image.Digest)+1:] {
		if _, _, ok := signed.service(at.Name, d); ok {
			return d, nil
		}
	}
	return "", fmt.Errorf("service %s has no earlier image to roll back to", at.Name)
}
