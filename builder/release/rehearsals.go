// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec/refusal"
)

// created is the annotation that says when something was attached.
const created = "org.opencontainers.image.created"

// AttachRehearsal attaches the signed statement of a rehearsal to a layer. It has a type of its
// own: there may be many of one layer, and its signatures are looked for among few attachments.
func AttachRehearsal(ctx context.Context, r *registry.Registry, layer string, bundle []byte, now time.Time) error {
	raw, _, err := r.Manifest(ctx, oci.RepoLayer, layer)
	if err == nil {
		_, err = r.Attach(ctx, oci.RepoLayer, oci.Describe(oci.MediaTypeManifest, raw),
			registry.Attachment{Type: oci.TypeRehearsal, Blob: oci.Describe(oci.TypeBundle, bundle),
				Annotations: map[string]string{created: now.UTC().Format(time.RFC3339)}})
	}
	if err != nil {
		return fmt.Errorf("attach to layer %s: %w", layer, err)
	}
	return nil
}

// Rehearsals returns the bundles that [AttachRehearsal] attached to a layer, of the newest
// attachments. None of them is verified.
func Rehearsals(ctx context.Context, r *registry.Registry, layer string) (bundles [][]byte, err error) {
	list, err := r.Referrers(ctx, oci.RepoLayer, layer)
	if err != nil {
		return nil, fmt.Errorf("rehearsals of layer %s: %w", layer, err)
	}
	slices.Reverse(list) // where the list has no annotations, the last one is the newest
	slices.SortStableFunc(list, func(a, b oci.Descriptor) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Annotations[created], a.Annotations[created]))
	})
	for _, d := range list[:min(len(list), maxReferrers)] {
		bundle, kind, err := readBundle(ctx, r, d, oci.MaxBundle)
		switch {
		case err == nil && kind != oci.TypeRehearsal: // a signature
		case err == nil:
			bundles = append(bundles, bundle)
		case refusal.Of(err) == "" && !errors.Is(err, oci.ErrNotFound): // else it is an attachment of another kind, or a bad one
			return nil, fmt.Errorf("rehearsals of layer %s: %w", layer, err)
		}
	}
	return bundles, nil
}

// rank has rehearsals come first. Not every registry says in its list what kind an attachment is.
func rank(d oci.Descriptor) int {
	if d.ArtifactType == oci.TypeRehearsal {
		return 0
	}
	return 1
}
