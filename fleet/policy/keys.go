// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"crypto"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
)

// KeysChange is a change of a fleet's keys, as keys rotate, revoke and rehearse -o json print it.
type KeysChange struct {
	Fleet   string                 `json:"fleet"`
	Version uint64                 `json:"version"` // that counts, or would
	Changes []published.RoleChange `json:"changes"`
	Revoked []string               `json:"revoked"`        // ids that this version revokes
	Signed  int                    `json:"signed"`         // nodes whose overlays were signed again
	Left    int                    `json:"left,omitempty"` // nodes that follow the chain that is given up
	DryRun  bool                   `json:"dryRun,omitempty"`
}

// nextKeys returns the version that comes after those of a chain where the policy's keys are to count,
// and what it changes; where revoke is set it revokes the keys that go.
func nextKeys(p published.Policy, after *chain.Chain, revoke bool, reason string, at time.Time) (KeysChange, spec.Keys, error) {
	newest := after.Newest().Keys
	next := spec.Keys{Roles: p.Roles(), Revoked: slices.Clone(newest.Revoked), Reason: reason, At: at}
	changes, err := published.CompareRoles(newest.Roles, next.Roles)
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

// followers counts the nodes that are left behind where another chain takes the place of a policy's:
// each refuses what is published then, until it boots by other boot files. It refuses root keys that
// can sign the chain's next version, since then no node has to be left behind.
func followers(ctx context.Context, in *published.Reader, policy published.Policy, root []crypto.Signer) (int, error) {
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
	f, err := in.Find(ctx, policy)
	if err != nil {
		return 0, err
	}
	rows, err := f.Nodes(ctx)
	return len(rows), err
}

// KeysPlan is what a change of a fleet's keys would meet, as keys plan -o json prints it.
type KeysPlan struct {
	Fleet   string                 `json:"fleet"`
	Version uint64                 `json:"version"` // that counts
	Changes []published.RoleChange `json:"changes"`
	Older   []string               `json:"older"` // nodes whose layer's agent does not follow the chain

	Behind []NodeKeys `json:"behind"`           // as the fleet's service was told
	Silent int        `json:"silent,omitempty"` // nodes that have not reported their keys
}

// planKeys returns what a change meets where the keys of a policy count now.
func planKeys(ctx context.Context, in *published.Reader, now published.Policy, change KeysChange) (*KeysPlan, error) {
	out := &KeysPlan{Fleet: change.Fleet, Version: now.Chain.Version(), Changes: append([]published.RoleChange{}, change.Changes...),
		Behind: []NodeKeys{}}
	now.Site = false
	found, err := in.Find(ctx, now)
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
			if v.Roles[r.Name], err = sign.IDs(r.Role.Keys); err != nil {
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
