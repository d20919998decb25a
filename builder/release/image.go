// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keychain"
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

// OpenBase opens an OCI image as one tar of its whole file system, for a
// layer whose base it is. It may be anybody's image: credentials are those that
// the user has for its host, see [keychain.Chain], and TLS is never left out. What
// comes is checked against the digest.
func OpenBase(arch string) func(context.Context, string) (io.ReadCloser, error) {
	return func(ctx context.Context, ref string) (io.ReadCloser, error) {
		var image v1.Image
		var err error
		if dir, digest, ok := strings.Cut(strings.TrimPrefix(ref, "oci:"), "@"); ok && strings.HasPrefix(ref, "oci:") {
			image, err = layoutImage(dir, digest)
		} else {
			image, err = remoteImage(ctx, ref, arch)
		}
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", ref, err)
		}
		return mutate.Extract(image), nil
	}
}

func layoutImage(dir, digest string) (v1.Image, error) {
	hash, err := v1.NewHash(digest)
	if err != nil {
		return nil, err
	}
	path, err := layout.FromPath(dir)
	if err != nil {
		return nil, err
	}
	return path.Image(hash)
}

func remoteImage(ctx context.Context, ref, arch string) (v1.Image, error) {
	digest, err := name.NewDigest(ref)
	if err != nil {
		return nil, err
	}
	logins := &keychain.Chain{Prefix: digest.Context().RepositoryStr()}
	transport, err := registry.Transport(digest.Context().RegistryStr(), registry.Options{Logins: logins.Find})
	if err != nil {
		return nil, err
	}
	return remote.Image(digest, remote.WithContext(ctx), remote.WithTransport(transport), // which logs in
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
}
