// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/download"
	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/bootagent/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

// effective are the services that this node is to have: those of an overlay, but for
// the ones that an operator keeps at an earlier image. What is kept counts only as far
// as a kept overlay of the node, verified again, has it.
func (n *Node) effective(want []spec.Service) []spec.Service {
	if len(want) == 0 {
		return nil
	}
	kept := n.rememberedServices()
	out := slices.Clone(want)
	var signed signedOverlays
	for i, s := range out {
		held := kept[s.Name].Held
		if held == "" || held == s.Image.Digest {
			continue
		}
		if signed == nil {
			signed = n.signedOverlays()
		}
		if before, _, ok := signed.service(s.Name, held); ok {
			out[i] = before
		} else {
			n.say("service %s was kept at image %s, which no kept overlay has: it follows the overlay", s.Name, held)
		}
	}
	return out
}

// rememberedServices is what the node remembers of services. A file that cannot be read
// is one that says nothing: services follow the overlay, and the file is written anew.
func (n *Node) rememberedServices() map[string]state.Service {
	kept, err := n.folder.Services()
	if err != nil {
		n.say("%v: no service is held", err)
	}
	return kept
}

// signedOverlays are those that are kept and verified, the newest first.
type signedOverlays []*trust.Accepted

func (n *Node) signedOverlays() signedOverlays {
	if n.follower == nil {
		return nil
	}
	kept, err := n.follower.Kept()
	if err != nil {
		n.say("%v", err)
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

// serviceStore is where images of services are kept: also on a host that caisson did
// not boot they outlive a reboot.
func (n *Node) serviceStore() (*layers.Store, error) {
	if n.boot.Mode == spec.ModeAttached {
		return layers.OpenStore(n.folder.Path("store"))
	}
	return n.store()
}

// images gives the item what was fetched.
func (n *Node) images() service.Images { return &fetched{n} }

type fetched struct{ n *Node }

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

// fetchTime bounds how long one run waits for images: what has come by then is kept,
// and the next run goes on with it.
const fetchTime = 2 * time.Minute

// bring fetches the images of services that the node lacks. What cannot be had now is
// tried again in the next run; the node goes on with what it has.
func (n *Node) bring(ctx context.Context, o *spec.Overlay) {
	n.unfetched = map[string]error{}
	want := n.effective(o.Services)
	if len(want) == 0 || n.follower == nil {
		return
	}
	store, err := n.serviceStore()
	if err != nil {
		n.say("%v", err)
		return
	}
	ctx, end := context.WithTimeout(ctx, fetchTime)
	defer end()
	for _, s := range want {
		if store.Has(s.Image.Digest, s.Image.Size) {
			continue
		}
		from := download.Download{Source: n.follower.Source, Repo: oci.RepoService, Store: store}
		if err := from.Blob(ctx, oci.Descriptor{MediaType: oci.TypeSquashfs, Digest: s.Image.Digest, Size: s.Image.Size}, nil); err != nil {
			n.unfetched[s.Image.Digest] = err
			n.say("service %s: %v", s.Name, err)
			continue
		}
		n.say("service %s: fetched commit %s", s.Name, s.Commit)
	}
}

// noteServices is [Node.serve] where what goes wrong is no reason to stop.
func (n *Node) noteServices(o *spec.Overlay) {
	if err := n.serve(o); err != nil {
		n.say("services: %v", err)
	}
}

// serve notes which images services have been at, once they are in effect, and frees
// those that nobody will go back to.
func (n *Node) serve(o *spec.Overlay) error {
	kept := n.rememberedServices()
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
		if err := n.folder.SaveServices(kept); err != nil {
			return err
		}
	}
	if before+len(o.Services) == 0 {
		return nil
	}
	return errors.Join(service.Tidy(service.Places{Root: n.o.Root, Run: n.path(paths.RunServices)}), n.collectServices(changed))
}

// keptImages is how many images of a service a node keeps: the present one and two to
// go back to.
const keptImages = 3

// collectServices frees images of an attached host; on others that is a part of
// [Node.collect].
func (n *Node) collectServices(changed bool) error {
	if !changed || n.boot.Mode != spec.ModeAttached {
		return nil
	}
	store, err := n.serviceStore()
	if err != nil {
		return err
	}
	keep := map[string]bool{}
	n.keepServices(keep)
	_, err = store.Collect(keep)
	return err
}

// keepServices adds the images that services are at, or may go back to.
func (n *Node) keepServices(keep map[string]bool) {
	for _, k := range n.rememberedServices() {
		keep[k.Held] = true
		for _, d := range k.Images {
			keep[d] = true
		}
	}
	all := n.signedOverlays() // what waits, and what a change may be taken back to
	for _, a := range all[:min(len(all), keptImages)] {
		for _, s := range a.Overlay.Services {
			keep[s.Image.Digest] = true
		}
	}
}

// serving returns the digests of the overlays that say what services may go back to.
func (n *Node) serving() []string {
	kept := n.rememberedServices()
	if len(kept) == 0 {
		return nil
	}
	all := n.signedOverlays()
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

// Services says where the services of this node stand.
func (n *Node) Services() ([]spec.ServiceStatus, error) {
	found, err := n.running()
	if err != nil {
		return nil, err
	}
	return n.services(&found.Overlay), nil
}

func (n *Node) services(o *spec.Overlay) []spec.ServiceStatus {
	kept := n.rememberedServices()
	var out []spec.ServiceStatus
	var signed signedOverlays
	if len(o.Services) > 0 {
		signed = n.signedOverlays()
	}
	for i, s := range n.effective(o.Services) {
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

// Hold is what an operator of the node says about a service.
type Hold struct {
	Service string
	Back    bool   // to the commit before
	Reason  string // may be empty
}

// HoldService keeps a service where it is, or takes it to the image that it had before
// and keeps it there. The service acts with the next run.
func (n *Node) HoldService(h Hold) (spec.ServiceStatus, error) {
	return n.changeService(h.Service, func(at spec.Service, k *state.Service) error {
		to := at.Image.Digest
		if h.Back {
			var err error
			if to, err = n.imageBefore(at, k.Images); err != nil {
				return err
			}
		}
		k.Held, k.Reason, k.Since = to, h.Reason, time.Now().Unix()
		return nil
	})
}

// ForwardService has a service follow the overlay again.
func (n *Node) ForwardService(name string) (spec.ServiceStatus, error) {
	return n.changeService(name, func(_ spec.Service, k *state.Service) error {
		k.Held, k.Reason, k.Since = "", "", 0
		return nil
	})
}

// imageBefore is the image that a service had before the one that it is at.
func (n *Node) imageBefore(at spec.Service, images []string) (string, error) {
	signed := n.signedOverlays()
	for _, d := range images[slices.Index(images, at.Image.Digest)+1:] {
		if _, _, ok := signed.service(at.Name, d); ok {
			return d, nil
		}
	}
	return "", fmt.Errorf("service %s has been at nothing else that this node could go back to", at.Name)
}

func (n *Node) changeService(name string, change func(spec.Service, *state.Service) error) (spec.ServiceStatus, error) {
	found, err := n.running()
	if err != nil {
		return spec.ServiceStatus{}, err
	}
	all := n.effective(found.Overlay.Services)
	i := slices.IndexFunc(all, func(s spec.Service) bool { return s.Name == name })
	if i < 0 {
		return spec.ServiceStatus{}, fmt.Errorf("this node has no service %q", name)
	}
	kept := n.rememberedServices()
	k := kept[name]
	if err := change(all[i], &k); err != nil {
		return spec.ServiceStatus{}, err
	}
	kept[name] = k
	if err := n.folder.SaveServices(kept); err != nil {
		return spec.ServiceStatus{}, err
	}
	st := n.services(&found.Overlay)[i]
	n.record("service", events.With("service", name), events.With("tracking", st.Tracking), events.With("commit", st.Commit), events.With("why", k.Reason))
	return st, nil
}
