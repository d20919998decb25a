// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// CheckImage reads all of an image of the layer, from each place that has it, and holds it
// against its digest and, where the layer names one, the root of its hash tree, as a node
// does.
func (l Layer) CheckImage(ctx context.Context, i spec.Image) error {
	_, err := oci.Anywhere(ctx, l.registry.Source(), func(from oci.Source) (struct{}, error) { return struct{}{}, l.checkImage(ctx, from, i) })
	if err != nil {
		return fmt.Errorf("image %s of layer %s: %w", i.Name, l.Digest, err)
	}
	return nil
}

func (l Layer) checkImage(ctx context.Context, from oci.Source, i spec.Image) error {
	blob, err := from.Blob(ctx, oci.RepoLayer, oci.Descriptor{MediaType: i.MediaType, Digest: i.Digest, Size: i.Size}, 0)
	if err != nil {
		return err
	}
	defer blob.Close() // only read
	sum := sha256.New()
	read := io.TeeReader(io.LimitReader(blob, i.Size), sum)
	signed, named := l.Roots[i.Digest]
	var root verity.Hash
	if named {
		salt, err := verity.Parse(digest.Hex(i.Digest))
		if err != nil {
			return err
		}
		if root, err = verity.Root(read, i.Size, salt); err != nil {
			return err
		}
	} else if _, err := io.Copy(io.Discard, read); err != nil {
		return err
	}
	if got := digest.From(sum); got != i.Digest {
		return refusal.New(refusal.Digest, "it is %s, not %s", got, i.Digest)
	}
	if named && root.String() != signed {
		return refusal.New(refusal.Layer, "its hash tree has the root %s, the layer's description names %.80q", root, signed)
	}
	return nil
}

// Save writes a blob of the layer repository to a file, or nothing when its
// content is not what the digest says.
func Save(ctx context.Context, r *registry.Registry, digest, name string) error {
	body, _, err := r.Blob(ctx, oci.RepoLayer, digest)
	if err != nil {
		return err
	}
	defer body.Close() // only read
	return durable.Write(name, 0o644, func(w io.Writer) error {
		_, err := io.Copy(w, io.LimitReader(body, oci.MaxBlob))
		return err
	})
}
