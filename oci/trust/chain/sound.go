// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"slices"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/rules"
)

// sound returns why nobody can follow a version, nil where one can. It looks at no
// signature.
func sound(k *spec.Keys) error {
	if k.APIVersion != spec.APIVersion || k.Kind != spec.KindKeys {
		return refusal.New(refusal.Keys, "the document is %.40q %.40q", k.APIVersion, k.Kind)
	}
	if err := rules.Fleet(k.Fleet); err != nil {
		return refusal.New(refusal.BadName, "%w", err)
	}
	if k.Version < 1 || k.Version > sign.MaxNumber {
		return refusal.New(refusal.BadNumber, "version %d of the keys", k.Version)
	}
	if (k.Version == 1) != (k.Previous == "") || k.Previous != "" && !oci.ValidDigest(k.Previous) {
		return refusal.New(refusal.Keys, "version %d names %.80q as the version before it", k.Version, k.Previous)
	}
	if n := len(k.Revoked); n > MaxRevoked || !slices.IsSorted(k.Revoked) || len(slices.Compact(slices.Clone(k.Revoked))) != n {
		return refusal.New(refusal.Keys, "revoked has %d ids; at most %d, sorted, each once", n, MaxRevoked)
	}
	owner := map[string]string{} // the role of a key's id
	for _, r := range k.Roles.All() {
		if err := soundRole(r, k.Revoked, owner); err != nil {
			return err
		}
	}
	return nil
}

// soundRole holds a role to what its readers rely on, and notes whose its keys are.
func soundRole(r spec.NamedRole, revoked []string, owner map[string]string) error {
	n := len(r.Role.Keys)
	if n == 0 && r.Role.Threshold == 0 && r.Name != "root" && r.Name != "operator" {
		return nil // nobody has it
	}
	if n > MaxRole || r.Role.Threshold < 1 || r.Role.Threshold > n {
		return refusal.New(refusal.Threshold, "role %s has %d keys and a threshold of %d; at most %d keys", r.Name, n, r.Role.Threshold, MaxRole)
	}
	keys, err := sign.ParsePublics(r.Role.Keys)
	if err != nil {
		return refusal.New(refusal.BadKey, "role %s: %w", r.Name, err)
	}
	for _, key := range keys {
		switch id := key.ID(); {
		case owner[id] != "":
			return refusal.New(refusal.Keys, "key %s has two roles, %s and %s", id, owner[id], r.Name)
		case slices.Contains(revoked, id):
			return refusal.New(refusal.Keys, "key %s of role %s is revoked", id, r.Name)
		default:
			owner[id] = r.Name
		}
	}
	return nil
}
