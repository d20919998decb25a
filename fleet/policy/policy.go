// SPDX-License-Identifier: Apache-2.0

// Package policy reads whom a publisher trusts: the keys of a site, or keys that
// are named without one. What comes of it is a [published.Policy], which package
// publish enforces. By it a [Change] makes other keys of a site count, [LetIn] lets
// somebody into a node, and [Layers] are those that a build goes on from or a loader is made of.
//
// It verifies nothing itself but what it signs for a rescue, and it is not trust, by which nodes
// decide. cmd/caisson, fleet/preview and caisson-kube import it.
package policy

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/rotate"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Site returns what a site says about trust, its key files read. A lifetime that
// is not empty, as in 30d or 12h, takes the place of the site's own. What [Problems]
// reports is refused.
func Site(s *site.Site, lifetime string) (published.Policy, error) {
	p := published.Policy{Site: true, Fleet: s.Name(), Threshold: s.Trust().Threshold, Lifetime: s.Trust().Expires}
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
func Keys(names []string, threshold int) (*published.Policy, error) {
	trusted, err := keys.Publics(names)
	if err != nil {
		return nil, err
	}
	if threshold = cmp.Or(threshold, len(trusted)); threshold < 1 || threshold > len(trusted) {
		return nil, cli.Usage("at most the number of keys", "--threshold %d with %d keys", threshold, len(trusted))
	}
	return &published.Policy{Operator: trusted, Threshold: threshold}, nil
}

// Names returns the names of keys by their ids, after their files.
func Names(files []string) (map[string]string, error) {
	names := map[string]string{}
	for _, name := range files {
		list, err := keys.Publics([]string{name})
		if err != nil {
			return nil, err
		}
		for _, k := range list {
			names[k.ID()] = strings.TrimSuffix(filepath.Base(name), ".pub")
		}
	}
	return names, nil
}

// Versions returns the versions of the keys beside a site alone, none without root keys:
// [published.Reader.Newest] says which keys count.
func Versions(s *site.Site) (p published.Policy, err error) {
	p.Fleet = s.Name()
	if name := s.Trust().Chain; name != "" {
		p.Chain, err = chain.ReadFile(name)
	}
	return p, unreadVersions(err)
}

// unreadVersions says what helps where the versions of the keys cannot be read.
func unreadVersions(err error) error {
	switch {
	case err == nil || refusal.Of(err) == refusal.NeedsAgent: // the file is right, and of a later release
		return err
	case errors.Is(err, fs.ErrPermission):
		return cli.WithHint(err, readable)
	}
	return cli.WithHint(err, "put back the last version of the file, from version control or from who publishes")
}

// Release returns what a site says about layers alone, and [Versions] also where its release
// keys cannot be read.
func Release(s *site.Site) (published.Policy, error) {
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
	d, err := plain.ParseSpan(text)
	if err != nil || d < time.Minute || d > plain.LongestSpan {
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

const readable = "let this user read it: a public key is no secret"

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
	case errors.Is(err, fs.ErrPermission):
		p.Hint = readable
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

// FirstKeys returns the files of a new fleet's keys: the pairs of who signs layers, who signs
// overlays, who attests how a layer was built and who says which keys count, and version 1 of them.
func FirstKeys(fleet string, at time.Time) (files []durable.File, err error) {
	pairs := map[string]*ecdsa.PrivateKey{}
	for _, name := range []string{site.Release, site.Operator, site.Attestation, site.Root} {
		key, err := sign.Generate()
		if err != nil {
			return nil, fmt.Errorf("make key %s: %w", name, err)
		}
		pairs[name] = key
		private, err := keys.Marshal(key, nil)
		if err != nil {
			return nil, fmt.Errorf("make key %s: %w", name, err)
		}
		files = append(files,
			durable.File{Name: "keys/" + name + ".key", Data: private, Mode: 0o600},
			durable.File{Name: "keys/" + name + ".pub", Data: sign.VerifierOf(key).PEM(), Mode: 0o644})
	}
	of := func(name string) spec.Role {
		return spec.Role{Keys: []string{string(sign.VerifierOf(pairs[name]).PEM())}, Threshold: 1}
	}
	candidate, err := rotate.SignKeys(spec.Keys{APIVersion: spec.APIVersion, Kind: spec.KindKeys, Fleet: fleet,
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
	return append(files, durable.File{Name: "caisson.keys", Data: c.Marshal(), Mode: 0o644}), nil
}

// Layers are the layers of a site in a registry.
type Layers struct {
	*published.Reader
	Site    *site.Site
	Trusted published.Policy // whose layers count now
	NoKeys  error            // why the site's release keys cannot be read, which a digest does not need
}

// OpenLayers asks a reader's registry which release keys of a site count now.
func OpenLayers(ctx context.Context, p *published.Reader, s *site.Site) (l Layers, err error) {
	l = Layers{Reader: p, Site: s}
	l.Trusted, l.NoKeys = Release(s)
	l.Trusted, err = p.Newest(ctx, l.Trusted)
	return l, err
}

// Before returns what a build goes on from, the account ledger foremost, as a release key of the
// site signed it: its author gives users the numbers of others, and with them
// their files. A registry that holds no layer yet begins a new one. A digest is as good as
// a signature. Numbers that the layers where it is pushed to have given stay given,
// whatever is named as previous, which open opens.
func (l Layers) Before(ctx context.Context, previous string,
	open func(ref string) (*registry.Registry, error)) (b release.Before, err error) {
	current, err := l.at(ctx, l.Reader, release.Current)
	none := errors.Is(err, oci.ErrNotFound) && refusal.Of(err) == "" // nothing was ever built there
	switch {
	case none && previous == "":
		return b, nil
	case previous == "":
		return current, cli.WithHint(err, "the account ledger comes from layers that a release key of the site signed; "+
			"--previous REF@sha256:DIGEST names others")
	case err != nil && !none && l.NoKeys == nil && refusal.Of(err) == "":
		return b, err
	}
	ref, reference, err := release.ParseName(previous)
	if err != nil {
		return b, err
	}
	there := *l.Reader
	if there.Registry, err = open(ref); err != nil {
		return b, err
	}
	if b, err = l.at(ctx, &there, reference); err != nil {
		return b, fmt.Errorf("--previous: %w", err)
	}
	b.Ledger, err = release.Join(current.Ledger, b.Ledger)
	return b, err
}

// at reads what to go on from at one place.
func (l Layers) at(ctx context.Context, p *published.Reader, reference string) (b release.Before, err error) {
	trusted := l.Trusted
	var set *release.Set
	if oci.ValidDigest(reference) {
		trusted.Release = nil
		set, err = release.Find(ctx, p.Registry, reference)
	} else {
		set, err = p.Set(ctx, trusted, reference)
		if l.NoKeys != nil && !errors.Is(err, oci.ErrNotFound) {
			return b, l.NoKeys
		}
	}
	if err != nil {
		return b, err
	}
	b.Layers = set.Layers
	b.Ledger, err = set.Accounts(ctx, l.Site.Name(), trusted.Release)
	return b, err
}

// Loads returns the layer whose kernel loads: the one of a reference, the current one when that is
// empty, for an architecture, the default variant's when that is empty. A release key that counts
// must have signed it, unless the operator insists.
func (l Layers) Loads(ctx context.Context, reference, arch string, unsigned bool) (found release.Layer, err error) {
	if l.NoKeys != nil && !unsigned {
		return found, cli.WithHint(l.NoKeys, "trust.keys.release of the site names the key of 'caisson build'; --unsigned "+
			"boots a layer that nobody released")
	}
	reference = cmp.Or(reference, release.Current)
	var layers []release.Layer
	if unsigned {
		l.Say("warning: the layer's signature is not checked: whoever can push to %s chooses the kernel", l.Registry.Ref())
		layers, err = release.Open(ctx, l.Registry, reference)
	} else {
		layers, err = l.Reader.Layers(ctx, l.Trusted, reference)
	}
	if err != nil {
		return found, err
	}
	if arch != "" {
		layers = slices.DeleteFunc(layers, func(l release.Layer) bool { return l.Arch != arch })
		if len(layers) == 0 {
			return found, cli.Usage("nodes with the label kubernetes.io/arch get one", "%s names no layer for %s", reference, arch)
		}
	}
	recipe := ""
	if l.Site.HasLayer() {
		recipe = site.RecipeID(l.Site.DefaultRecipe())
	}
	found, err = release.ForVariant(layers, recipe, site.DefaultVariant)
	if err != nil && arch != "" {
		return layers[0], nil // any of them starts such machines
	}
	return found, cli.WithHint(err, "--layer DIGEST, as 'caisson build' prints it, names the one whose kernel loads: the "+
		"layer of each node has overrides")
}

// MayPush refuses a release key that does not count any more, where its public half is beside it: else
// the key itself decides, after the build.
func (l Layers) MayPush(files *release.KeyFiles) error {
	public, err := keys.PublicOf(files.Release)
	if err != nil || public == nil {
		return nil //nolint:nilerr // see above
	}
	return l.Trusted.MayRelease(public)
}

// Pusher opens the keys that sign what was built, to push it.
func (l Layers) Pusher(files *release.KeyFiles) (p release.Pusher, err error) {
	seen, _ := l.Memory.At(l.Registry.Ref().String()) // zero of a place that nobody remembers
	p.Registry, p.Seen = l.Registry, seen.Layers.IssuedAt
	if p.Release, p.Attest, err = files.Open(l.Site); err != nil {
		return p, err
	}
	if l.NoKeys == nil { // else the builder's own key counts
		p.Trusted = l.Trusted.Release
	}
	if p.Release == nil {
		return p, nil
	}
	public, err := sign.NewVerifier(p.Release.Public())
	if err != nil {
		return p, err
	}
	return p, l.Trusted.MayRelease(public)
}
