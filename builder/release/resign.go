// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"crypto"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Resigning is which layers another release key is to sign, and whose word it takes.
type Resigning struct {
	Layers  []string        // digests that somebody trusted names
	Trusted []sign.Verifier // who released them
	Stated  []sign.Verifier // who may have said of an index that it is current; those whose keys are stolen may not
	Seen    string          // digest of the index that was seen as current before: any of Trusted may have said so
	By      crypto.Signer
	Now     time.Time
	Dry     bool // verify all of it, and sign nothing
}

// ErrNotStated is returned where all layers are signed again, and what is current is not:
// nobody trusted has said so.
var ErrNotStated = errors.New("nobody trusted says what is current")

// Resign has another release key sign layers that one of the trusted keys released, and what
// is said of the index that is current. What it has signed already is left as it is, so a call
// that was cut is repeated.
func Resign(ctx context.Context, r *registry.Registry, what Resigning) error {
	pub, err := sign.NewVerifier(what.By.Public())
	if err != nil {
		return err
	}
	mine := []sign.Verifier{pub}
	for _, digest := range what.Layers {
		if Verify(ctx, r, digest, mine) == nil {
			continue
		}
		if err := Verify(ctx, r, digest, what.Trusted); err != nil {
			return err
		}
		resp, err := r.Source().Manifest(ctx, oci.RepoLayer, digest, "")
		if err != nil {
			return fmt.Errorf("layer %s: %w", digest, err)
		}
		if what.Dry {
			continue
		}
		if err := Sign(ctx, r, resp.Data, what.By, what.Now); err != nil {
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
	stated := what.Stated
	if set.Index == what.Seen {
		stated = slices.Concat(stated, what.Trusted)
	}
	said, err := set.Statement(ctx, stated)
	if refusal.Of(err) != "" {
		return fmt.Errorf("%w: it leads to %s: %w", ErrNotStated, set.Index, err)
	}
	if err != nil {
		return fmt.Errorf("layer:%s: %w", Current, err)
	}
	if what.Dry {
		return nil
	}
	predicate, err := json.Marshal(said)
	if err != nil {
		return err
	}
	bundle, err := sign.Attest(what.By, set.Index, PredicateLayers, predicate)
	if err != nil {
		return err
	}
	resp, err := r.Source().Manifest(ctx, oci.RepoLayer, set.Index, "")
	if err != nil {
		return err
	}
	return attach(ctx, r, oci.Describe(oci.MediaTypeIndex, resp.Data), bundle, PredicateLayers, what.Now)
}
