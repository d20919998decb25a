// SPDX-License-Identifier: Apache-2.0

package stage

import (
	"context"
	"errors"
	"slices"

	"github.com/caisson-os/caisson/bootagent/fetch/download"
	"github.com/caisson-os/caisson/layers/delta"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec/refusal"
)

// bring fetches a part: by its chunks where an image of the same name is kept.
func (s Stager) bring(ctx context.Context, part Part, progress func(int64)) (download.Tally, error) {
	from := download.Download{Source: s.From, Repo: oci.RepoLayer, Store: s.Store}
	want := oci.Descriptor{Digest: part.Digest, Size: part.Size}
	like := s.like(ctx, part)
	if len(like) == 0 {
		return from.Image(ctx, want, nil, nil, progress)
	}
	index, err := oci.ReadBlob(ctx, &kept{store: s.Store, from: s.From, say: s.Say}, oci.RepoLayer,
		oci.Descriptor{MediaType: oci.TypeChunks, Digest: part.Chunks.Digest, Size: part.Chunks.Size}, delta.MaxIndex)
	if refusal.Of(err) != "" || errors.Is(err, oci.ErrNotFound) {
		tally, failed := from.Image(ctx, want, nil, nil, progress)
		tally.Whole = err
		return tally, failed
	}
	if err != nil {
		return download.Tally{}, err
	}
	tally, err := from.Image(ctx, want, index, like, progress)
	tally.Fetched += part.Chunks.Size
	return tally, err
}

// like lists the images of the same name in the layers that are kept.
func (s Stager) like(ctx context.Context, part Part) (digests []string) {
	if part.Chunks == nil {
		return nil
	}
	for _, layer := range s.Kept {
		l, err := trust.Layer(ctx, &kept{store: s.Store, say: s.Say}, layer)
		if err != nil {
			continue // a layer that is not kept shares nothing
		}
		for _, i := range l.Images {
			if i.Name == part.Name && i.Digest != part.Digest && s.Store.Has(i.Digest, i.Size) && !slices.Contains(digests, i.Digest) {
				digests = append(digests, i.Digest)
			}
		}
	}
	return digests
}
