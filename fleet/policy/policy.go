// SPDX-License-Identifier: Apache-2.0

// Package policy reads whom a publisher trusts: the keys of a site, or keys that
// are named without one. What comes of it is a [publish.Policy], which package
// publish enforces.
//
// It verifies nothing itself, and it is not trust, by which nodes decide. Only
// cmd/caisson and fleet/preview import it.
package policy

import (
	"cmp"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Site returns what a site says about trust, its key files read. A lifetime that
// is not empty, as in 30d or 12h, takes the place of the site's own. What [Problems]
// reports is refused.
func Site(s *site.Site, lifetime string) (publish.Policy, error) {
	p := publish.Policy{Site: true, Fleet: s.Name(), Threshold: s.Trust().Threshold, Lifetime: s.Trust().Expires}
	var err error
	if lifetime != "" {
		if p.Lifetime, err = parseLifetime(lifetime); err != nil {
			return p, err
		}
	}
	keys, problems := read(s)
	if len(problems) > 0 {
		r := report.Report{}
		for _, one := range problems {
			one.Severity = report.Error
			r.Add(one)
		}
		return p, r.Err()
	}
	p.Operator, p.Epoch, p.Release = keys[site.Operator], keys[site.Epoch], keys[site.Release]
	p.Root, p.RootThreshold, p.Attestation = keys[site.Root], s.Trust().RootThreshold, keys[site.Attestation]
	p.Rescue, p.Beside = keys[site.Rescue], s.Trust().Beside
	known, err := Versions(s)
	p.Chain = known.Chain
	return p, err
}

// SameFleet refuses a site whose versions of the keys are of another fleet.
func SameFleet(s *site.Site) error {
	p, err := Versions(s)
	if err != nil || p.Chain == nil {
		return err
	}
	return p.SameFleet()
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

// Versions returns the versions of the keys beside a site alone, none without root keys:
// [publish.Publisher.Newest] says which keys count.
func Versions(s *site.Site) (p publish.Policy, err error) {
	p.Fleet = s.Name()
	if name := s.Trust().Chain; name != "" {
		p.Chain, err = chain.ReadFile(name)
	}
	return p, err
}

// Release returns what a site says about layers alone, and [Versions] also where its release
// keys cannot be read.
func Release(s *site.Site) (publish.Policy, error) {
	p, err := Versions(s)
	if err != nil {
		return p, err
	}
	if p.Release, err = keys.Publics(s.Trust().Release); err != nil {
		return p, cli.WithHint(fmt.Errorf("release keys: %w", err), "trust.keys.release of the site names whose layers are accepted")
	}
	return p, nil
}

// parseLifetime reads 30d and what time.ParseDuration reads.
func parseLifetime(text string) (time.Duration, error) {
	d, err := publish.ParseSpan(text)
	if err != nil || d < time.Minute || d > 10*366*24*time.Hour {
		return 0, cli.Usage("as in 30d or 12h, at most ten years", "%q is not a lifetime of signatures", text)
	}
	return d, nil
}

// Problems reports what is wrong with the key files of a site: those that publish would
// refuse. Files that the site does not name, and that are taken all the same, are
// warnings: they may come later.
func Problems(s *site.Site) []report.Problem {
	_, problems := read(s)
	if err := SameFleet(s); err != nil {
		problems = append(problems, report.Problem{At: s.NameAt(), Path: "metadata.name", Severity: report.Error,
			Rule: "key", Message: err.Error(), Hint: cli.HintOf(err)})
	}
	return problems
}

// held is a key that was read, and where it was named.
type held struct {
	role string
	file site.File
}

// read reads the key files of a site by their roles. A key has one role, and stands in
// it once.
func read(s *site.Site) (byRole map[string][]sign.Verifier, problems []report.Problem) {
	byRole = map[string][]sign.Verifier{}
	seen := map[string]held{}
	for _, role := range []string{site.Root, site.Operator, site.Release, site.Epoch, site.Attestation, site.Rescue} {
		files, named := s.Trust().KeyFiles(role)
		for _, f := range files {
			found, err := keys.Publics([]string{f.Name})
			if err != nil {
				unused := role == site.Attestation || role == site.Release && !s.HasLayer() // nothing that is published is verified with it
				if !unused || !errors.Is(err, fs.ErrNotExist) {
					problems = append(problems, unread(s, role, f, named, err))
				}
				continue
			}
			if other, twice := seen[found[0].ID()]; twice {
				problems = append(problems, again(role, f, other))
				continue
			}
			seen[found[0].ID()] = held{role, f}
			byRole[role] = append(byRole[role], found[0])
		}
	}
	return byRole, problems
}

// unread is the problem of a key file that cannot be read.
func unread(s *site.Site, role string, f site.File, named bool, err error) report.Problem {
	p := report.Problem{At: f.At, Path: f.Path, Severity: report.Error, Rule: "key", Message: err.Error(),
		Hint: "a public key as 'caisson keys generate' writes it"}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		generate := "'caisson keys generate " + strings.TrimSuffix(f.Name, ".pub") + "' makes "
		p.Hint = generate + "one"
		if _, err := os.Stat(s.Trust().Chain); err == nil {
			p.Hint = "take it from version control or from who changed the keys last; " + generate +
				"another one, which counts after 'caisson keys rotate'"
		}
		if !named {
			p.Severity, p.Message = report.Warning, "the site names no "+role+" key, and "+f.Name+" is not there"
		}
	default:
		p.Hint = cmp.Or(cli.HintOf(err), p.Hint)
	}
	return p
}

// again is the problem of a key that was named before.
func again(role string, f site.File, other held) report.Problem {
	p := report.Problem{At: f.At, Path: f.Path, Severity: report.Error, Rule: "key",
		Hint:    "a key has one role: 'caisson keys generate' makes another",
		Message: fmt.Sprintf("one key is both %s and %s key: %s is named at %s", other.role, role, other.file.Name, other.file.At)}
	if other.role == role {
		p.Hint, p.Message = "remove one of the two", fmt.Sprintf("the key is listed twice: %s is named at %s", other.file.Name, other.file.At)
	}
	return p
}

// First returns version 1 of a new fleet's keys as a file; pairs are by the names of roles.
func First(fleet string, pairs map[string]*ecdsa.PrivateKey, at time.Time) ([]byte, error) {
	of := func(name string) spec.Role {
		return spec.Role{Keys: []string{string(sign.VerifierOf(pairs[name]).PEM())}, Threshold: 1}
	}
	candidate, err := publish.SignKeys(spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: fleet,
		Version: 1, At: at, Reason: "a new site", Roles: spec.Roles{
			Root: of(site.Root), Operator: of(site.Operator), Release: of(site.Release), Attestation: of(site.Attestation)}},
		[]crypto.Signer{pairs[site.Root]})
	if err != nil {
		return nil, err
	}
	c, err := chain.First(candidate)
	if err != nil {
		return nil, err
	}
	return c.Marshal(), nil
}
