// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/caisson-os/caisson/oci/keychain"
	"github.com/caisson-os/caisson/oci/registry"
)

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
