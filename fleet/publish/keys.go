// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Roles are the keys of a policy as a version of fleet:keys has them.
func (p *Policy) Roles() spec.Roles {
	return spec.Roles{
		Root: role(p.Root, p.RootThreshold), Operator: role(p.Operator, p.Threshold),
		Release: role(p.Release, 1), Attestation: role(p.Attestation, 1), Epoch: role(p.Epoch, 1), Rescue: role(p.Rescue, 1),
	}
}

func role(keys []sign.Verifier, threshold int) spec.Role {
	if len(keys) == 0 {
		return spec.Role{}
	}
	return spec.Role{Keys: pems(keys), Threshold: threshold}
}

// RoleChange lists the keys of one role that come and go, and its threshold.
type RoleChange struct {
	Role      string   `json:"role"`
	Added     []string `json:"added,omitempty"`   // ids
	Removed   []string `json:"removed,omitempty"` // ids
	Threshold [2]int   `json:"threshold"`         // before and after
}

// String is one line for people.
func (c RoleChange) String() string {
	words := plain.Each(c.Added, func(id string) string { return "+" + id })
	for _, id := range c.Removed {
		words = append(words, "-"+id)
	}
	if c.Threshold[0] != c.Threshold[1] {
		words = append(words, fmt.Sprintf("threshold %d → %d", c.Threshold[0], c.Threshold[1]))
	}
	return c.Role + ": " + strings.Join(words, ", ")
}

// CompareRoles lists the roles in which two versions differ, in the order of the document.
func CompareRoles(from, to spec.Roles) (out []RoleChange, err error) {
	before := from.All()
	for i, after := range to.All() {
		was, err := ids(before[i].Role.Keys)
		if err != nil {
			return nil, err
		}
		is, err := ids(after.Role.Keys)
		if err != nil {
			return nil, err
		}
		c := RoleChange{Role: after.Name, Added: without(is, was), Removed: without(was, is),
			Threshold: [2]int{before[i].Role.Threshold, after.Role.Threshold}}
		if len(c.Added)+len(c.Removed) > 0 || c.Threshold[0] != c.Threshold[1] {
			out = append(out, c)
		}
	}
	return out, nil
}

func ids(texts []string) ([]string, error) {
	keys, err := sign.ParsePublics(texts)
	if err != nil {
		return nil, err
	}
	return plain.Each(keys, sign.Verifier.ID), nil
}

// with returns the policy with the keys of a chain's newest version.
func (p Policy) with(c *chain.Chain) (Policy, error) {
	p.Chain = c
	return p.of(c.Newest())
}

// of returns the policy with the keys of a version.
func (p Policy) of(version chain.Link) (_ Policy, err error) {
	k := version.Keys.Roles
	for _, r := range []struct {
		keys *[]sign.Verifier
		from spec.Role
	}{{&p.Operator, k.Operator}, {&p.Release, k.Release}, {&p.Epoch, k.Epoch}, {&p.Root, k.Root},
		{&p.Attestation, k.Attestation}, {&p.Rescue, k.Rescue}} {
		if *r.keys, err = sign.ParsePublics(r.from.Keys); err != nil {
			return p, err
		}
	}
	p.Threshold, p.RootThreshold = k.Operator.Threshold, k.Root.Threshold
	return p, nil
}

// SameFleet refuses versions of the keys that are of another fleet: the site was renamed, or
// they are another site's.
func (p Policy) SameFleet() error {
	if p.Chain == nil || p.Fleet == "" {
		return nil
	}
	if of := p.Chain.Newest().Keys.Fleet; of != p.Fleet {
		return hint("write metadata.name as it was, or take caisson.keys of this site; where nothing is published, 'caisson "+
			"keys rotate' begins again",
			"the versions of the keys are of fleet %q, the site is %q", of, p.Fleet)
	}
	return nil
}

// Follow returns the policy with the keys that count now: those of the newest version that
// the site or the registry has. Without root keys it is the policy as it was. For a publish
// the site must name the same keys: else it would be signed by keys that nodes do not obey. Where
// a version cannot be had, the policy has the newest before it beside the error, for who keeps
// versions and nothing else.
func (p *Publisher) Follow(ctx context.Context, policy Policy, publishes bool) (Policy, error) {
	if policy.Chain == nil {
		if publishes && len(policy.Root) > 0 {
			return policy, hint("'caisson keys rotate' makes the first version; where there is one, take caisson.keys from "+
				"version control or from who publishes", "the site names root keys, and has no version of the keys yet")
		}
		return policy, nil
	}
	if err := policy.SameFleet(); err != nil {
		return policy, err
	}
	c := policy.Chain.Fork()
	if err := c.Walk(ctx, p.Registry.Source(), func(chain.Link) error { return nil }); err != nil {
		reached, bad := policy.with(c)
		switch {
		case errors.Is(err, chain.ErrLong):
			err = cli.WithHint(err, "'caisson keys pull' brings them all")
		case refusal.Of(err) != "":
			err = hint("where another chain was begun, take trust.keys and caisson.keys from where the site was last published",
				"version %d of the keys: %w", c.Version()+1, err)
		}
		return reached, errors.Join(err, bad)
	}
	if mine := policy.Chain.Version(); c.Version() > mine {
		p.Say("%s has version %d of the keys, the file beside the site has %d: 'caisson keys pull' brings it",
			p.Registry.Ref(), c.Version(), mine)
	}
	if publishes && !policy.Beside {
		changes, err := CompareRoles(c.Newest().Keys.Roles, policy.Roles())
		if err != nil {
			return policy, err
		}
		if len(changes) > 0 {
			return policy, cli.WithHint(fmt.Errorf("the site names other keys than version %d: %s", c.Version(), changes[0]),
				"'caisson keys rotate' makes them count; if the site is older than the version, mend trust.keys")
		}
	}
	return policy.with(c)
}

// Newest is [Publisher.Follow] for those who write what nodes begin with or build on: the
// published fleet is verified, whose fleet:current names the newest version, so one that the
// registry withholds is missed. A policy without versions is refused where the registry has
// some: nodes that begin with its keys would obey no version.
func (p *Publisher) Newest(ctx context.Context, policy Policy) (Policy, error) {
	if policy.Chain == nil {
		_, err := p.Registry.Source().Manifest(ctx, oci.RepoFleet, trust.KeysTag(1), "")
		switch {
		case isNotFound(err):
			return policy, nil
		case err != nil:
			return policy, err
		}
		return policy, cli.WithHint(refusal.New(refusal.KeysBehind, "%s has versions of the keys, and the site has none", p.Registry.Ref()),
			"take trust.keys.root and caisson.keys from where the site was last published")
	}
	q := *p
	q.AcceptExpired = true
	v, err := q.look(ctx, policy, purpose{half: true})
	if err != nil {
		return policy, err
	}
	return v.policy, nil
}

// currentKeysAreThere: a registry that withholds a version keeps this publisher obeying keys that
// are revoked.
func currentKeysAreThere(l *looked) error {
	if l.policy.Chain == nil && l.fresh.Keys > 0 && len(l.p.Signers) > 0 && !l.p.Dry { // what comes of it is signed
		return cli.WithHint(refusal.New(refusal.KeysBehind,
			"the fleet's keys are at version %d: whoever does not follow them would sign what nodes refuse", l.fresh.Keys),
			"give --site, with caisson.keys beside it; beside objects of a cluster, keys/root.pub and caisson.keys")
	}
	if l.policy.Chain == nil {
		return nil
	}
	return l.policy.Chain.Behind(l.fresh.Keys)
}

// NewestKeys returns the newest version of the keys that has a tag in the registry and the
// digest of its document, by any signer; 0 where there is none.
func (p *Publisher) NewestKeys(ctx context.Context) (newest uint64, digest string, err error) {
	tags, err := p.Registry.Tags(ctx, oci.RepoFleet)
	if err != nil && !isNotFound(err) {
		return 0, "", err
	}
	for _, tag := range tags {
		newest = max(newest, versionOf(tag))
	}
	if newest == 0 {
		return 0, "", nil
	}
	digest, err = trust.Keys(ctx, p.Registry.Source(), newest, func(c trust.Candidate) (string, error) { return oci.Digest(c.Document), nil })
	return newest, digest, err
}

// versionOf returns the version of the keys that a tag of the fleet's repository names, 0 where
// it names something else.
func versionOf(tag string) uint64 {
	digits, _ := strings.CutPrefix(tag, strings.TrimSuffix(trust.KeysTag(0), "0"))
	if v, err := strconv.ParseUint(digits, 10, 64); err == nil && trust.KeysTag(v) == tag {
		return v
	}
	return 0
}

// IsKeys reports whether a tag of the fleet's repository is that of a version of the keys.
func IsKeys(tag string) bool { return versionOf(tag) > 0 }

// putKeys pushes the versions that the registry lacks, oldest first: a node finds each by the
// one before. Of a registry that has the newest it asks nothing else.
func (p *Publisher) putKeys(ctx context.Context, c *chain.Chain) error {
	if c == nil {
		return nil
	}
	links := c.Links()
	var missing []chain.Link
	for _, l := range slices.Backward(links) {
		_, err := p.Registry.Source().Manifest(ctx, oci.RepoFleet, trust.KeysTag(l.Keys.Version), "")
		if err == nil {
			break
		}
		if !isNotFound(err) {
			return err
		}
		missing = append(missing, l)
	}
	for _, l := range slices.Backward(missing) {
		if _, err := p.putSigned(ctx, oci.TypeKeys, l.Candidate.Document, []string{trust.KeysTag(l.Keys.Version)},
			l.Candidate.Bundles...); err != nil {
			return err
		}
	}
	return nil
}

// WithoutFeature lists the nodes whose layer's agent lacks a feature, in the order of their
// names. A layer that cannot be read counts as one that lacks it.
func (f *Fleet) WithoutFeature(ctx context.Context, feature string) ([]string, error) {
	out := []string{}
	rows, err := f.Nodes(ctx)
	if err != nil {
		return nil, err
	}
	knows := map[string]bool{"": true} // a host that caisson did not boot has an agent of its own
	for _, row := range rows {
		if _, asked := knows[row.Layer]; asked {
			continue
		}
		l, err := release.Read(ctx, f.p.Registry, row.Layer)
		if err != nil && !lost(err) {
			return nil, err
		}
		knows[row.Layer] = err == nil && slices.Contains(l.Features, feature)
	}
	for _, name := range plain.Names(maps.Keys(rows)) {
		if !knows[rows[name].Layer] {
			out = append(out, name)
		}
	}
	return out, nil
}

// KeysChange is a change of a fleet's keys, as keys rotate, revoke and rehearse -o json print it.
type KeysChange struct {
	Fleet   string       `json:"fleet"`
	Version uint64       `json:"version"` // that counts, or would
	Changes []RoleChange `json:"changes"`
	Revoked []string     `json:"revoked"`        // ids that this version revokes
	Signed  int          `json:"signed"`         // nodes whose overlays were signed again
	Left    int          `json:"left,omitempty"` // nodes that follow the chain that is given up
	DryRun  bool         `json:"dryRun,omitempty"`
}

// NextKeys returns the version that comes after those of a chain where the policy's keys are to count,
// and what it changes; where revoke is set it revokes the keys that go.
func (p Policy) NextKeys(after *chain.Chain, revoke bool, reason string, at time.Time) (KeysChange, spec.Keys, error) {
	newest := after.Newest().Keys
	next := spec.Keys{Roles: p.Roles(), Revoked: slices.Clone(newest.Revoked), Reason: reason, At: at}
	changes, err := CompareRoles(newest.Roles, next.Roles)
	out := KeysChange{Fleet: newest.Fleet, Version: newest.Version + 1, Changes: changes, Revoked: []string{}}
	if err != nil || !revoke {
		return out, next, err
	}
	for _, c := range changes {
		out.Revoked = append(out.Revoked, c.Removed...)
	}
	if len(out.Revoked) == 0 && (len(changes) > 0 || len(newest.Revoked) == 0) { // else a run is repeated that may have been cut
		return out, next, cli.Usage("take it out of trust.keys of the site, and put another in its place",
			"no key leaves the site, so none is revoked")
	}
	next.Revoked = append(next.Revoked, out.Revoked...)
	slices.Sort(next.Revoked)
	return out, next, nil
}

// Write prints for people which keys change.
func (c KeysChange) Write(w io.Writer) {
	for _, role := range c.Changes {
		cli.Printf(w, "%s\n", role)
	}
	for _, id := range c.Revoked {
		cli.Printf(w, "revoked: %s\n", id)
	}
}

// Tell says what came of it.
func (c KeysChange) Tell(say func(format string, args ...any)) {
	would := ""
	if c.DryRun {
		would = "would be: "
	}
	signed := plain.Count(c.Signed, "overlay") + " signed again"
	if c.Left > 0 {
		signed = plain.Count(c.Left, "node") + " left behind: each refuses what is published from then on until it boots " +
			"by boot files that are written again"
	}
	say("%sfleet %s has version %d of the keys; %s", would, c.Fleet, c.Version, signed)
	if len(c.Revoked) > 0 && !c.DryRun {
		say("nodes without a disk are safe once 'caisson netboot' or 'caisson image' has rewritten their boot files")
	}
}

// Followers counts the nodes that are left behind where another chain takes the place of a policy's:
// each refuses what is published then, until it boots by other boot files. It refuses root keys that
// can sign the chain's next version, since then no node has to be left behind.
func (p *Publisher) Followers(ctx context.Context, policy Policy, root []crypto.Signer) (int, error) {
	by := policy.Chain.Newest().Keys.Roles.Root
	old, err := sign.ParsePublics(by.Keys)
	if err != nil {
		return 0, err
	}
	can := map[string]bool{}
	for _, s := range root {
		if pub, ok := sign.Find(old, s.Public()); ok {
			can[pub.ID()] = true
		}
	}
	if len(can) >= by.Threshold {
		return 0, cli.Usage("without --begin-anew this rotates the keys, and every node follows; where root keys are "+
			"stolen, sign with new ones alone", "enough root keys of version %d sign to go on from it", policy.Chain.Version())
	}
	policy.Site = false
	f, err := p.Find(ctx, policy)
	if err != nil {
		return 0, err
	}
	rows, err := f.Nodes(ctx)
	return len(rows), err
}

// KeysPlan is what a change of a fleet's keys would meet, as keys plan -o json prints it.
type KeysPlan struct {
	Fleet   string       `json:"fleet"`
	Version uint64       `json:"version"` // that counts
	Changes []RoleChange `json:"changes"`
	Older   []string     `json:"older"` // nodes whose layer's agent does not follow the chain

	Behind []NodeKeys `json:"behind"`           // as the fleet's service was told
	Silent int        `json:"silent,omitempty"` // nodes that have not reported their keys
}

// PlanKeys returns what a change meets where the keys of a policy count now.
func (p *Publisher) PlanKeys(ctx context.Context, now Policy, change KeysChange) (*KeysPlan, error) {
	out := &KeysPlan{Fleet: change.Fleet, Version: now.Chain.Version(), Changes: append([]RoleChange{}, change.Changes...),
		Behind: []NodeKeys{}}
	now.Site = false
	found, err := p.Find(ctx, now)
	if err != nil {
		return nil, err
	}
	older, err := found.WithoutFeature(ctx, spec.KeyChainFeature)
	out.Older = append([]string{}, older...)
	return out, err
}

// Hear adds what a node has reported of the keys that it knows, nil where it has said nothing of them.
func (k *KeysPlan) Hear(node string, known *spec.KeysKnown, reported bool) {
	switch {
	case known == nil && slices.Contains(k.Older, node):
	case known == nil && !reported:
		k.Silent++
	case known == nil:
		k.Behind = append(k.Behind, NodeKeys{Node: node})
	case known.Behind(k.Version):
		k.Behind = append(k.Behind, NodeKeys{node, *known})
	}
}

// Due reports whether there is something to do.
func (k *KeysPlan) Due() bool { return len(k.Changes)+len(k.Older)+len(k.Behind) > 0 }

// Write prints for people which keys change, and who does not know those that count.
func (k *KeysPlan) Write(w io.Writer) {
	for _, change := range k.Changes {
		cli.Printf(w, "%s\n", change)
	}
	for _, name := range k.Older {
		cli.Printf(w, "%s\tits layer's agent does not follow the chain: it takes new keys at its next boot\n", name)
	}
	for _, n := range k.Behind {
		cli.Printf(w, "%s\t%s\n", n.Node, n)
	}
}

// NodeKeys holds what a node has reported of the keys that it knows.
type NodeKeys struct {
	Node string `json:"node"`
	spec.KeysKnown
}

func (n NodeKeys) String() string {
	if n.Version == 0 {
		return "its boot files begin no chain of keys, and it follows none: write them again"
	}
	if n.Forgets {
		return fmt.Sprintf("its boot files are of version %d, and it keeps nothing else: write them again", n.BootFiles)
	}
	return fmt.Sprintf("it knows version %d", n.Version)
}

// KeysVersion is a version of a fleet's keys, as keys show and pull -o json print it.
type KeysVersion struct {
	Version uint64              `json:"version"`
	At      time.Time           `json:"at"`
	Reason  string              `json:"reason,omitempty"`
	Digest  string              `json:"digest"`
	Roles   map[string][]string `json:"roles"`   // ids of keys
	Revoked []string            `json:"revoked"` // ids, of this version and those before it
}

// KeysVersions are those of a chain, in order.
type KeysVersions []KeysVersion

// VersionsOf returns the versions of a chain.
func VersionsOf(c *chain.Chain) (all KeysVersions, err error) {
	for _, l := range c.Links() {
		v := KeysVersion{Version: l.Keys.Version, At: l.Keys.At, Reason: l.Keys.Reason, Digest: l.Digest,
			Roles: map[string][]string{}, Revoked: append([]string{}, l.Keys.Revoked...)}
		for _, r := range l.Keys.Roles.All() {
			if len(r.Role.Keys) == 0 {
				continue
			}
			if v.Roles[r.Name], err = ids(r.Role.Keys); err != nil {
				return nil, err
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// Write prints the versions for people.
func (all KeysVersions) Write(w io.Writer) {
	for i, v := range all {
		cli.Printf(w, "version %d\t%s\t%s\n", v.Version, v.At.Format(time.RFC3339), v.Reason)
		for _, r := range new(spec.Roles).All() {
			for _, id := range v.Roles[r.Name] {
				cli.Printf(w, "  %-12s%s\n", r.Name, id)
			}
		}
		for _, id := range v.Revoked {
			if i == 0 || !slices.Contains(all[i-1].Revoked, id) {
				cli.Printf(w, "  %-12s%s\n", "revoked", id)
			}
		}
	}
}
