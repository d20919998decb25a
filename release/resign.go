// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
)

// Resign has another release key sign layers that one of the trusted keys released, and what
// that key says of the index that is current. What it has signed already is left as it is,
// so a call that was cut is repeated.
func Resign(ctx context.Context, r *registry.Registry, layers []string, trusted []sign.Verifier, by crypto.Signer, now time.Time) error {
	pub, err := sign.NewVerifier(by.Public())
	if err != nil {
		return err
	}
	mine := []sign.Verifier{pub}
	for _, digest := range layers {
		if Verify(ctx, r, digest, mine) == nil {
			continue
		}
		if err := Verify(ctx, r, digest, trusted); err != nil {
			return err
		}
		resp, err := r.Source().Manifest(ctx, oci.RepoLayer, digest, "")
		if err != nil {
			return fmt.Errorf("layer %s: %w", digest, err)
		}
		if err := Sign(ctx, r, resp.Data, by, now); err != nil {
			return fmt.Errorf("layer %s: %w", digest, err)
		}
	}
	set, err := Find(ctx, r, Current)
	if errors.Is(err, oci.ErrNotFound) {
		return nil
	}
	if err != nil || set.Index == "" {
		return err
	}
	if _, err := set.Statement(ctx, mine); err == nil {
		return nil
	}
	said, err := set.Statement(ctx, trusted)
	if err != nil {
		return fmt.Errorf("layer:%s: %w", Current, err)
	}
	predicate, err := json.Marshal(said)
	if err != nil {
		return err
	}
	bundle, err := sign.Attest(by, set.Index, PredicateLayers, predicate)
	if err != nil {
		return err
	}
	resp, err := r.Source().Manifest(ctx, oci.RepoLayer, set.Index, "")
	if err != nil {
		return err
	}
	return attach(ctx, r, oci.Describe(oci.MediaTypeIndex, resp.Data), bundle, PredicateLayers, now)
}
