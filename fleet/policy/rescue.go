// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"context"
	"crypto"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/oci/trust/rescue"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// Rescue says what lets somebody into a node.
type Rescue struct {
	Code, Reason string
	Lasts        time.Duration
	SSHKeys      []string // files with public keys
	Console      bool
}

// Document returns the statement for a node, without the fleet's name.
func (r Rescue) Document(node string, at time.Time) (doc spec.Rescue, err error) {
	if r.Reason == "" {
		return doc, cli.Usage("it is kept in the node's journal and status", "--reason is missing")
	}
	if len(r.SSHKeys) == 0 && !r.Console {
		return doc, cli.Usage("give --ssh-key FILE, --console, or both", "nothing is to be opened")
	}
	doc = spec.Rescue{APIVersion: spec.APIVersion, Kind: spec.KindRescue, Node: node,
		Lasts: int64(r.Lasts / time.Second), Console: r.Console, Reason: r.Reason, At: at}
	if r.Lasts > spec.MaxRescue {
		return doc, cli.Usage("whoever is in, and needs longer, reads the node's next code", "--for is at most %s", spec.MaxRescue)
	}
	if doc.Code, err = spec.ParseCode(r.Code); err != nil {
		return doc, cli.Usage("it is on the console of a node that does not come up, and in 'caisson-agent status' for root", "%w", err)
	}
	for _, name := range r.SSHKeys {
		data, err := os.ReadFile(name)
		if err != nil {
			return doc, fmt.Errorf("ssh key: %w", err)
		}
		if strings.Contains(string(data), "PRIVATE KEY-----") {
			return doc, cli.Usage("the public half is in the file whose name ends in .pub", "%s is a private key", name)
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
				continue
			}
			if problem := rescue.KeyProblem(line); problem != "" {
				return doc, cli.Usage("as in the file id_ed25519.pub of ssh-keygen", "--ssh-key %s: %s", name, problem)
			}
			doc.SSHKeys = append(doc.SSHKeys, line)
		}
	}
	return doc, nil
}

// RescueNames are those by which a machine may ask for the statement of a node of a site, the node's
// own first. Where the registry is not asked, alone, the file beside the site says which keys count.
func RescueNames(s *site.Site, policy published.Policy, node string, alone bool) ([]string, error) {
	if policy.Chain == nil || len(policy.Rescue) == 0 {
		return nil, cli.Usage("docs/rescue.md: name one in trust.keys.rescue, and run 'caisson keys rotate'",
			"the site has no rescue key that nodes know of")
	}
	if alone {
		changes, err := published.CompareRoles(policy.Chain.Newest().Keys.Roles, policy.Roles())
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(changes, func(c published.RoleChange) bool { return c.Role == "rescue" }) {
			return nil, noRescue(policy.Chain)
		}
	}
	byHardware := strings.HasPrefix(node, "mac-") || strings.HasPrefix(node, "uuid-")
	if !byHardware && !s.Fleet().Has(node) || !oci.ValidTag(node) {
		return nil, cli.Usage("a node of the site, or mac-… or uuid-… of a machine that does not know its name", "the site has no node %q", node)
	}
	n, _ := s.Fleet().Get(node) // a machine that does not know its name has no other
	return append([]string{node}, trust.AliasTags(n.Match.MACs, n.Match.UUIDs)...), nil
}

// noRescue refuses a chain that does not have the site's rescue keys yet: nodes would pass over
// what they sign. One that has others is for who signs to answer.
func noRescue(c *chain.Chain) error {
	return cli.Usage("run 'caisson keys rotate' first, or 'caisson keys pull' where somebody else did",
		"version %d of the keys does not have the site's rescue keys", c.Newest().Keys.Version)
}

// LetIn has the reader's signers sign a statement for each of a node's names, by the keys that count
// now, and puts it where the node looks.
func LetIn(ctx context.Context, in *published.Reader, policy published.Policy, doc spec.Rescue, names []string) error {
	current, err := in.Follow(ctx, policy, false)
	if err != nil {
		return err
	}
	if len(current.Chain.Newest().Keys.Roles.Rescue.Keys) == 0 {
		return noRescue(current.Chain)
	}
	sayOlder(ctx, in, current, doc.Node)
	for _, name := range names {
		doc.Node = name
		c, err := SignRescue(current, doc, in.Signers)
		if err != nil {
			return err
		}
		if err := putRescue(ctx, in.Registry, name, c); err != nil {
			return err
		}
	}
	return nil
}

// sayOlder says where the node's layer has an agent that passes over the statement. Whether that
// is known does not keep anybody from trying.
func sayOlder(ctx context.Context, in *published.Reader, current published.Policy, node string) {
	current.Site = false
	var older []string
	found, err := in.Find(ctx, current)
	if err == nil {
		older, err = found.WithoutFeature(ctx, spec.RescueFeature)
	}
	switch {
	case err != nil:
		in.Say("whether the agent of %s obeys this is not known: %v", node, err)
	case slices.Contains(older, node):
		in.Say("the agent of %s is older and passes over this: its next layer has one that obeys; a loader of now does at the next boot", node)
	}
}

// SignRescue signs what lets somebody into a node, and decides as that node would.
func SignRescue(policy published.Policy, doc spec.Rescue, by []crypto.Signer) (c trust.Candidate, err error) {
	if c.Document, err = spec.Encode(doc); err != nil {
		return c, err
	}
	said := sign.RescuePredicate{Fleet: doc.Fleet, Node: doc.Node, Code: doc.Code, IssuedAt: doc.At}
	if c.Bundles, err = sign.Each(by, func(s crypto.Signer) ([]byte, error) {
		return sign.SignRescue(s, oci.Digest(c.Document), said)
	}); err != nil {
		return c, err
	}
	_, err = rescue.Node{Fleet: policy.Fleet, Names: []string{doc.Node}, Code: doc.Code, Keys: policy.Roles().Rescue}.Accept(c)
	return c, err
}

// putRescue publishes it for its node, in place of one that was there.
func putRescue(ctx context.Context, in *registry.Registry, node string, c trust.Candidate) error {
	manifest, blobs := oci.DocumentManifest(oci.TypeRescue, c.Document, c.Bundles...)
	for _, b := range blobs {
		if err := in.PutData(ctx, oci.RepoRescue, b); err != nil {
			return err
		}
	}
	_, err := in.PutManifest(ctx, oci.RepoRescue, oci.MediaTypeManifest, manifest, node)
	return err
}
