// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"io"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
)

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
