// SPDX-License-Identifier: Apache-2.0

package release

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// The account ledger says whose every number is that a fleet ever gave. No layer has it:
// what concerns one rack would change the description, and so the digest, of every other
// layer, and each node would be sent a new one. It is an artifact beside the layers of an
// index, named there by its digest. So what is signed for the index holds for it, a copy
// of the index brings it, and it stays for as long as the index does.

// KindLedger is the kind of the ledger's document.
const KindLedger = "AccountLedger"

// ledger is the document.
type ledger struct {
	APIVersion string         `json:"apiVersion"`
	Kind       string         `json:"kind"`
	Fleet      string         `json:"fleet"`
	Accounts   []spec.Account `json:"accounts"`
}

// ledger pushes the ledger and returns its descriptor for the index.
func (p *Pusher) ledger(ctx context.Context, fleet string, rows []spec.Account) (oci.Descriptor, error) {
	document, err := spec.Encode(ledger{spec.APIVersion, KindLedger, fleet, rows})
	if err != nil {
		return oci.Descriptor{}, err
	}
	m := oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLedger,
		Config: oci.Describe(oci.MediaTypeEmpty, oci.Empty).Bare(), Layers: []oci.Descriptor{oci.Describe(oci.TypeLedger, document).Bare()}}
	for _, d := range []oci.Descriptor{oci.Describe(oci.MediaTypeEmpty, oci.Empty), oci.Describe(oci.TypeLedger, document)} {
		if err := p.Registry.PutData(ctx, oci.RepoLayer, d); err != nil {
			return oci.Descriptor{}, err
		}
	}
	raw := oci.Encode(m)
	digest, err := p.Registry.PutManifest(ctx, oci.RepoLayer, oci.MediaTypeManifest, raw)
	return oci.Descriptor{MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLedger, Digest: digest, Size: int64(len(raw))}, err
}

// Accounts returns the account ledger of an index: what stands beside its layers, and
// who is in them. With keys the index must be stated by one; without, the caller who named its
// digest answers for it. One layer alone does not say whose every number is.
func (s *Set) Accounts(ctx context.Context, fleet string, keys []sign.Verifier) ([]spec.Account, error) {
	if s.Index == "" {
		return nil, cli.WithHint(refusal.New(refusal.Missing, "one layer says who is in it, and not which numbers were given to others"),
			"name the index of a version: REF@VERSION, or its digest")
	}
	if keys != nil {
		if _, err := s.Statement(ctx, keys); err != nil {
			return nil, err
		}
	}
	all, err := s.readLedger(ctx, fleet)
	if err != nil {
		return nil, fmt.Errorf("account ledger %s: %w", s.ledger, err)
	}
	for _, l := range s.Layers {
		if all, err = Join(all, l.Accounts); err != nil {
			return nil, fmt.Errorf("layer %s: %w", l.Digest, err)
		}
	}
	return all, nil
}

func (s *Set) readLedger(ctx context.Context, fleet string) ([]spec.Account, error) {
	m, err := manifest(ctx, s.registry, s.ledger)
	if err != nil {
		return nil, err
	}
	if m.ArtifactType != oci.TypeLedger || len(m.Layers) != 1 || m.Layers[0].MediaType != oci.TypeLedger {
		return nil, refusal.New(refusal.MediaType, "it holds no account ledger")
	}
	data, err := oci.ReadBlob(ctx, s.registry.Source(), oci.RepoLayer, m.Layers[0], oci.MaxConfig)
	if err != nil {
		return nil, err
	}
	var l ledger
	if err := spec.Decode(data, &l); err != nil {
		return nil, refusal.New(refusal.Malformed, "%w", err)
	}
	if l.APIVersion != spec.APIVersion || l.Kind != KindLedger {
		return nil, refusal.New(refusal.Malformed, "it is a %.80q of %.80q", l.Kind, l.APIVersion)
	}
	if l.Fleet != fleet {
		return nil, refusal.New(refusal.WrongFleet, "the ledger is for fleet %q, want %q", l.Fleet, fleet)
	}
	return l.Accounts, nil
}

// Join merges ledgers. Two numbers of one name are refused, and one number of two names:
// files would change hands.
func Join(known, more []spec.Account) ([]spec.Account, error) {
	if err := sameNumbers(known, more); err != nil {
		return nil, err
	}
	joined := slices.Concat(known, more)
	if _, err := builder.Settle(nil, joined); err != nil {
		return nil, refusal.New(refusal.Contradiction, "%w", err)
	}
	return joined, nil
}

// sameNumbers refuses an account whose number is not the known one.
func sameNumbers(known, now []spec.Account) error {
	numbers := plain.Map(known, func(a spec.Account) (accountName, spec.Account) { return nameOf(a), a })
	for _, a := range now {
		if was, ok := numbers[nameOf(a)]; ok && (was.UID != a.UID || was.GID != a.GID) {
			return refusal.New(refusal.Contradiction, "account %q has numbers %d and %d, it had %d and %d", a.Name, a.UID, a.GID, was.UID, was.GID)
		}
	}
	return nil
}

// accountName tells a group from a user of its name.
type accountName struct {
	name  string
	group bool
}

func nameOf(a spec.Account) accountName { return accountName{a.Name, a.UID < 0} }

// overtaken refuses to make an index current whose builder did not know what the one that
// is current now has given away: two builds at once would give one number twice.
func (p *Pusher) overtaken(ctx context.Context, fleet string, ours []spec.Account) error {
	keys := p.Trusted
	if keys == nil && p.Release != nil {
		key, err := sign.NewVerifier(p.Release.Public())
		if err != nil {
			return err
		}
		keys = []sign.Verifier{key}
	}
	set, err := Find(ctx, p.Registry, Current)
	if errors.Is(err, oci.ErrNotFound) || refusal.Of(err) != "" {
		return nil // nothing is there, or nothing that counts
	}
	if err != nil {
		return err // what was given meanwhile is not known
	}
	theirs, err := set.Accounts(ctx, fleet, keys)
	if refusal.Of(err) != "" {
		return nil // it is of none of the keys: the builder who built on it was asked to name another
	}
	if err != nil {
		return err
	}
	known := plain.Map(ours, func(a spec.Account) (accountName, spec.Account) { return nameOf(a), a })
	for _, a := range theirs {
		if was, ok := known[nameOf(a)]; !ok || was.UID != a.UID || was.GID != a.GID {
			return cli.WithHint(refusal.New(refusal.Contradiction, "another build gave account %q its numbers meanwhile", a.Name),
				"build again: what is built is in the cache")
		}
	}
	return nil
}
