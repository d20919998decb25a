// SPDX-License-Identifier: Apache-2.0

// Package policy reads whom a publisher trusts: the keys of a site, or keys that
// are named without one. What comes of it is a [publish.Policy], which package
// publish enforces.
//
// It verifies nothing itself, and it is not trust, by which nodes decide. Only
// cmd/caisson imports it.
package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/site"
)

// Site returns what a site says about trust, its key files read. A lifetime that
// is not empty, as in 30d or 12h, takes the place of the site's own. A key in two
// roles is refused.
func Site(s *site.Site, lifetime string) (publish.Policy, error) {
	t := s.Trust()
	p := publish.Policy{Site: true, Fleet: s.Name(), Threshold: t.Threshold, Lifetime: t.Expires}
	var err error
	if lifetime != "" {
		if p.Lifetime, err = parseLifetime(lifetime); err != nil {
			return p, err
		}
	}
	if p.Operator, err = keys.Publics(t.Operator); err != nil {
		return p, err
	}
	if p.Epoch, err = keys.Publics(t.Epoch); err != nil {
		return p, err
	}
	if s.HasLayer() {
		p.Release, err = keys.Publics(t.Release)
	}
	if err != nil {
		return p, err
	}
	return p, oneRoleEach(p, t.Attestation)
}

// Keys returns a policy that trusts public key files. All of the keys must have
// signed when the threshold is 0.
func Keys(names []string, threshold int) (*publish.Policy, error) {
	trusted, err := keys.Publics(names)
	if err != nil {
		return nil, err
	}
	if threshold == 0 {
		threshold = len(trusted)
	}
	if threshold < 1 || threshold > len(trusted) {
		return nil, cli.Usage("at most the number of keys", "--threshold %d with %d keys", threshold, len(trusted))
	}
	return &publish.Policy{Operator: trusted, Threshold: threshold}, nil
}

// Release returns what a site says about layers alone.
func Release(s *site.Site) (publish.Policy, error) {
	trusted, err := keys.Publics(s.Trust().Release)
	if err != nil {
		return publish.Policy{}, cli.WithHint(fmt.Errorf("release keys: %w", err), "trust.keys.release of the site names whose layers are taken")
	}
	return publish.Policy{Fleet: s.Name(), Release: trusted}, nil
}

// oneRoleEach refuses a key in two roles. Nothing published is verified with an
// attestation key, so its file may be missing.
func oneRoleEach(p publish.Policy, attestation []string) error {
	roles := map[string][]sign.Verifier{"release": p.Release, "operator": p.Operator, "epoch": p.Epoch}
	for _, name := range attestation {
		if more, err := keys.Publics([]string{name}); err == nil {
			roles["attestation"] = append(roles["attestation"], more...)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	seen := map[string]string{}
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		for _, k := range roles[role] {
			id := k.ID()
			if other := seen[id]; other != "" && other != role {
				return cli.Usage("caisson keys generate makes another", "one key is both %s and %s key: a key has one role", other, role)
			}
			seen[id] = role
		}
	}
	return nil
}
