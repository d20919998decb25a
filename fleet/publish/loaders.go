// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// Loaders returns what fleet:current names as what disks of nodes start.
func (p *Publisher) Loaders(ctx context.Context) ([]spec.Loader, error) {
	v, err := p.published(ctx, p.trusted())
	if err != nil {
		return nil, err
	}
	return v.loaders, nil
}

// setLoader names a loader in fleet:current, in place of the one of its architecture. Nodes
// never go back to a lower number, so neither does a publisher.
func (v *view) setLoader(l spec.Loader) error {
	list := slices.Clone(v.loaders)
	at, there := slices.BinarySearchFunc(list, l.Arch, func(l spec.Loader, arch string) int { return strings.Compare(l.Arch, arch) })
	switch {
	case there && list[at].Number >= l.Number && list[at] != l:
		return hint("run this again", "fleet:current has loader %d of %s, and this is %d", list[at].Number, l.Arch, l.Number)
	case there:
		list[at] = l
	default:
		list = slices.Insert(list, at, l)
	}
	v.loaders = list
	return nil
}

// checkLoader wants all of a loader in the registry.
func (r *verifying) checkLoader(ctx context.Context, l spec.Loader) error {
	for _, d := range []oci.Descriptor{{MediaType: oci.TypeUKI, Digest: l.Image.Digest, Size: l.Image.Size}, {MediaType: oci.TypeESP, Digest: l.ESP.Digest, Size: l.ESP.Size}} {
		there, err := r.p.Registry.HasBlob(ctx, oci.RepoLoader, d)
		if err == nil && !there {
			err = fmt.Errorf("%s: %w: no disk gets it; 'caisson loader' publishes it again", d.Digest, oci.ErrNotFound)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// pruneLoaders removes the loaders that fleet:current does not name. It verifies nothing, as
// all of [needs]: a forged document can keep a loader, never remove one that is named.
func (n *needs) pruneLoaders(ctx context.Context) error {
	tags, err := n.p.Registry.Tags(ctx, oci.RepoLoader)
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("list the loaders: %w", err)
	}
	if len(tags) == 0 {
		return nil
	}
	c, err := document(ctx, n.p.Registry.Source(), "current", oci.TypeFleet, oci.MaxFleet)
	if isNotFound(err) {
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
		if !strings.HasPrefix(tag, keepPrefix) || slices.ContainsFunc(current.Loaders, func(l spec.Loader) bool { return release.KeepTag(l.Manifest) == tag }) {
			continue
		}
		if err := n.removeKept(ctx, oci.RepoLoader, tag); err != nil {
			return fmt.Errorf("remove loader:%s: %w", tag, err)
		}
	}
	return nil
}
