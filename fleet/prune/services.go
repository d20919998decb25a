// SPDX-License-Identifier: Apache-2.0

package prune

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// PrunedService is the verdict on one image of a service.
type PrunedService struct {
	Image string `json:"image"`          // its digest
	Keep  string `json:"keep,omitempty"` // why it stays; empty when it goes
}

// overlayOf is an overlay that something needs.
type overlayOf struct {
	size int64
	why  string
}

func (n *needs) overlay(digest string, o overlayOf) {
	if _, known := n.overlays[digest]; !known {
		n.overlays[digest] = o
	}
}

// servicesOf adds the images that an overlay names. Whatever else is in it may be of a
// later release.
func (n *needs) servicesOf(overlay []byte, why string) error {
	var o struct {
		Services []struct {
			Image spec.Blob `json:"image"`
		} `json:"services"`
	}
	if err := json.Unmarshal(overlay, &o); err != nil {
		return err
	}
	for _, s := range o.Services {
		if n.services[s.Image.Digest] == "" {
			n.services[s.Image.Digest] = why
		}
	}
	return nil
}

// pruneServices removes images that no overlay names which has to stay. Overlays of
// earlier generations are read for that, unless there is no image at all; one that is
// gone needs none.
func (n *needs) pruneServices(ctx context.Context, keep bool) ([]PrunedService, error) {
	out := []PrunedService{}
	tags, err := n.tags(ctx, oci.RepoService, "images of services")
	if err != nil || len(tags) == 0 {
		return out, err
	}
	for _, of := range slices.Sorted(maps.Keys(n.overlays)) {
		o := n.overlays[of]
		data, err := oci.ReadBlob(ctx, n.in.Registry.Source(), oci.RepoNode,
			oci.Descriptor{MediaType: oci.TypeOverlay, Digest: of, Size: o.size}, oci.MaxOverlay)
		if errors.Is(err, oci.ErrNotFound) {
			continue
		}
		if err == nil {
			err = n.servicesOf(data, o.why)
		}
		if err != nil {
			return nil, fmt.Errorf("overlay %s: %w", of, err)
		}
	}
	for _, tag := range tags {
		image, ok := published.ImageOf(tag)
		if !ok {
			continue // nobody's business
		}
		one := PrunedService{image, n.services[image]}
		if out = append(out, one); one.Keep != "" || keep {
			continue
		}
		if err := n.removeKept(ctx, oci.RepoService, tag); err != nil {
			return nil, fmt.Errorf("remove service:%s: %w", tag, err)
		}
	}
	return out, nil
}

// removeKept removes the manifest that keeps an image or a loader, not only its name: what it
// keeps goes with it.
func (n *needs) removeKept(ctx context.Context, repo, tag string) error {
	resp, err := n.in.Registry.Source().Manifest(ctx, repo, tag, "")
	if err == nil {
		err = n.removal.Delete(ctx, repo, resp.Digest)
	}
	if errors.Is(err, oci.ErrNotFound) {
		return nil
	}
	return err
}

// pruneLoaders removes the loaders that fleet:current does not name. It verifies nothing, as
// all of [needs]: a forged document can keep a loader, never remove one that is named.
func (n *needs) pruneLoaders(ctx context.Context) error {
	tags, err := n.tags(ctx, oci.RepoLoader, "loaders")
	if err != nil || len(tags) == 0 {
		return err
	}
	c, err := published.Document(ctx, n.in.Registry.Source(), "current", oci.TypeFleet, oci.MaxFleet)
	if errors.Is(err, oci.ErrNotFound) {
		return nil // nobody publishes here
	}
	if err != nil {
		return err
	}
	var current spec.Fleet
	if _, err := spec.DecodeKnown(c.Document, &current); err != nil {
		return fmt.Errorf("fleet:current: %w", err)
	}
	for _, tag := range tags {
		if !published.IsShard(tag) || slices.ContainsFunc(current.Loaders,
			func(l spec.Loader) bool { return release.KeepTag(l.Manifest) == tag }) {
			continue
		}
		if err := n.removeKept(ctx, oci.RepoLoader, tag); err != nil {
			return fmt.Errorf("remove loader:%s: %w", tag, err)
		}
	}
	return nil
}
