// SPDX-License-Identifier: Apache-2.0

package chain

import (
	"cmp"
	"slices"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/rules"
)

// Caps on a document.
const (
	MaxRole    = 16  // keys of a role: as many bundles are looked at
	MaxRevoked = 512 // ids
)

// step is a candidate for the version after another, on its way through the checks. What
// a check reads was put there by an earlier one.
type step struct {
	from      Link
	candidate trust.Candidate
	digest    string

	said    sign.KeysPredicate // what the signature says
	doc     spec.Keys
	leftOut []string
}

type checkList = check.List[*step]

// all is the whole rule. No part of the document is parsed before the root keys of the
// version before have signed it.
var all = checkList{
	{Name: "keys: size", OK: capped},
	{Name: "keys: signed by the version before", OK: signedBefore},
	{Name: "keys: document", OK: parses},
	{Name: "keys: needs", OK: needsAreKnown},
	{Name: "keys: fleet", OK: fleetIsOurs},
	{Name: "keys: agreement", OK: agrees},
	{Name: "keys: next version", OK: isNext},
	{Name: "keys: previous", OK: follows},
	{Name: "keys: sense", OK: isSound},
	{Name: "keys: revoked", OK: keepsRevoked},
	{Name: "keys: signed by itself", OK: signedByItself},
}

// unsigned holds the checks that remain for the version that a chain begins with.
var unsigned = checkList{
	{Name: "keys: size", OK: capped},
	{Name: "keys: document", OK: parses},
	{Name: "keys: needs", OK: needsAreKnown},
	{Name: "keys: sense", OK: isSound},
}

func capped(s *step) error {
	return refusal.If(len(s.candidate.Document) > oci.MaxKeys, refusal.Oversize, "keys document of %d bytes", len(s.candidate.Document))
}

func signedBefore(s *step) error {
	said, err := signed(s, s.from.Keys.Roles.Root)
	if err == nil {
		s.said = said
	}
	return err
}

// signed returns what enough keys of a role say of the document.
func signed(s *step, by spec.Role) (sign.KeysPredicate, error) {
	keys, err := sign.ParsePublics(by.Keys)
	if err != nil {
		return sign.KeysPredicate{}, err
	}
	v, err := sign.VerifyKeys(s.candidate.Bundles, keys, by.Threshold, s.digest)
	if err != nil {
		return sign.KeysPredicate{}, err
	}
	return v.Predicate, nil
}

func parses(s *step) (err error) {
	s.leftOut, err = spec.DecodeKnown(s.candidate.Document, &s.doc)
	return refusal.If(err != nil, refusal.Keys, "%w", err)
}

// needsAreKnown: no need has a name yet; a later release may add some.
func needsAreKnown(s *step) error {
	return refusal.If(len(s.doc.Needs) > 0, refusal.NeedsAgent, "fleet:keys needs %.200q", s.doc.Needs)
}

func fleetIsOurs(s *step) error {
	return refusal.If(s.said.Fleet != s.from.Keys.Fleet, refusal.WrongFleet, "signed for fleet %q, this is %q", s.said.Fleet,
		s.from.Keys.Fleet)
}

// agrees keeps two sources of one truth from drifting apart.
func agrees(s *step) error {
	if s.doc.Fleet != s.said.Fleet || s.doc.Version != s.said.Version {
		return refusal.New(refusal.Contradiction, "the document is version %d for fleet %q, its statement version %d for %q",
			s.doc.Version, s.doc.Fleet, s.said.Version, s.said.Fleet)
	}
	return nil
}

// isNext: a version that is skipped may have revoked the keys that sign the one after it.
func isNext(s *step) error {
	want := s.from.Keys.Version + 1
	return refusal.If(s.doc.Version != want, refusal.Rollback, "version %d of the keys where %d is due", s.doc.Version, want)
}

// follows: two histories that have a version in common only by its number are a fork.
func follows(s *step) error {
	return refusal.If(s.doc.Previous != s.from.Digest, refusal.Replay, "version %d of the keys follows %.80q, version %d here is %s",
		s.doc.Version, s.doc.Previous, s.from.Keys.Version, s.from.Digest)
}

func isSound(s *step) error { return sound(&s.doc) }

// keepsRevoked: what is stolen stays stolen.
func keepsRevoked(s *step) error {
	for _, id := range s.from.Keys.Revoked {
		if !slices.Contains(s.doc.Revoked, id) {
			return refusal.New(refusal.Keys, "version %d revokes key %s, version %d does not", s.from.Keys.Version, id, s.doc.Version)
		}
	}
	return nil
}

// signedByItself: root keys that cannot sign would end the chain.
func signedByItself(s *step) error {
	_, err := signed(s, s.doc.Roles.Root)
	return err
}

// sound returns why nobody can follow a version, nil where one can. It looks at no
// signature.
func sound(k *spec.Keys) error {
	name, n := rules.Fleet(k.Fleet), len(k.Revoked)
	once := slices.IsSorted(k.Revoked) && len(slices.Compact(slices.Clone(k.Revoked))) == n
	if err := cmp.Or(
		refusal.If(k.APIVersion != spec.APIVersion || k.Kind != spec.KindKeys, refusal.Keys,
			"the document is %.40q %.40q", k.APIVersion, k.Kind),
		refusal.If(name != nil, refusal.BadName, "%w", name),
		refusal.If(k.Version < 1 || k.Version > sign.MaxNumber, refusal.BadNumber, "version %d of the keys", k.Version),
		refusal.If((k.Version == 1) != (k.Previous == "") || k.Previous != "" && !oci.ValidDigest(k.Previous), refusal.Keys,
			"version %d names %.80q as the version before it", k.Version, k.Previous),
		refusal.If(n > MaxRevoked || !once, refusal.Keys, "revoked has %d ids; at most %d, sorted, each once", n, MaxRevoked)); err != nil {
		return err
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
