// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"crypto/ecdsa"

	"github.com/caisson-os/caisson/oci/registry"
)

// Resolve returns the layers that a reference leads to, each with a release
// signature of its own by one of the keys.
func Resolve(ctx context.Context, r *registry.Registry, reference string, keys []*ecdsa.PublicKey) ([]Layer, error) {
	layers, err := Open(ctx, r, reference)
	if err != nil {
		return nil, err
	}
	for _, l := range layers {
		if err := l.Verify(ctx, keys); err != nil {
			return nil, err
		}
	}
	return layers, nil
}
