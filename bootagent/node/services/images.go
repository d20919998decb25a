// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"

	"github.com/caisson-os/caisson/bootagent/fetch/download"
	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

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
