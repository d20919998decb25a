// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"crypto"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// rescued is the output of rescue -o json.
type rescued struct {
	Fleet   string   `json:"fleet"`
	Node    string   `json:"node"`
	Names   []string `json:"names"` // by which the machine may take it
	Opens   []string `json:"opens"` // ssh, console
	Seconds int64    `json:"seconds"`
	Place   string   `json:"place"` // where it was published, or the file
}

// rescuing is a statement in the making.
type rescuing struct {
	destination
	code, file, reason string
	lasts              time.Duration
	sshKeys            []string
	console            bool
	who                signers

	site   *site.Site
	policy publish.Policy
}

func (a *app) rescueCommand() *cobra.Command {
	var r rescuing
	c := verb("rescue", func(c *cobra.Command, args []string) error {
		return r.run(c.Context(), a, args[:len(args)-1], args[len(args)-1])
	})
	f := c.Flags()
	f.StringVar(&r.code, "code", "", "the `CODE` that the node shows")
	f.DurationVar(&r.lasts, "for", time.Hour, "how long access lasts, at most 24h")
	f.StringArrayVar(&r.sshKeys, "ssh-key", nil, "let root in by the public SSH keys in `FILE`")
	f.BoolVar(&r.console, "console", false, "open a root shell on the console")
	f.StringVar(&r.reason, "reason", "", "why, for those who find it in the node's journal")
	f.StringVar(&r.file, "out", "", "write it to `FILE` to carry it to the node, instead of publishing it; a CD where the name ends in .iso")
	r.who.keyFlags(f)
	r.looking(a, f, toSite)
	return c
}

func (r *rescuing) run(ctx context.Context, a *app, names []string, node string) error {
	if r.file != "" {
		if err := cli.Writable("--out", r.file); err != nil {
			return err
		}
	}
	doc, err := r.document(a, names, node)
	if err != nil {
		return err
	}
	by, err := r.who.load(a, r.site.Trust().Rescue)
	if err != nil {
		return err
	}
	out := rescued{Fleet: doc.Fleet, Node: node, Names: r.names(node), Seconds: doc.Lasts, Place: r.file}
	if len(doc.SSHKeys) > 0 {
		out.Opens = append(out.Opens, "ssh")
	}
	if doc.Console {
		out.Opens = append(out.Opens, "console")
	}
	if r.file != "" {
		// One is enough: the hardware is what each machine knows of itself.
		out.Names = out.Names[min(1, len(out.Names)-1):][:1]
		doc.Node = out.Names[0]
		c, err := publish.SignRescue(r.policy, doc, by)
		if err != nil {
			return err
		}
		if err := r.write(c); err != nil {
			return err
		}
	} else if out.Place, err = r.publish(ctx, a, names[0], doc, out.Names, by); err != nil {
		return err
	}
	return a.show(out, func() {
		a.say("%s: node %s opens %s for %s when it finds this, if it still shows the code %s", out.Place, node,
			strings.Join(out.Opens, " and "), plain.Duration(r.lasts), doc.Code)
	})
}

// write writes the statement, or a medium that holds nothing else.
func (r *rescuing) write(c trust.Candidate) error {
	if !strings.HasSuffix(r.file, ".iso") {
		return durable.WriteFile(r.file, c.SaveRescue(), 0o644)
	}
	return durable.Fill(r.file, 0o644, func(f *os.File) error {
		return media.WriteRescue(f, c.SaveRescue(), now())
	})
}

// names are those by which the machine may ask for a node's statement, the node's own first.
func (r *rescuing) names(node string) []string {
	n, _ := r.site.Fleet().Get(node) // a machine that does not know its name has no other
	return append([]string{node}, trust.AliasTags(n.Match.MACs, n.Match.UUIDs)...)
}

// document returns the statement that the flags and the site ask for.
func (r *rescuing) document(a *app, names []string, node string) (doc spec.Rescue, err error) {
	if r.reason == "" {
		return doc, cli.Usage("it is kept in the node's journal and status", "--reason is missing")
	}
	if len(r.sshKeys) == 0 && !r.console {
		return doc, cli.Usage("give --ssh-key FILE, --console, or both", "nothing is to be opened")
	}
	doc = spec.Rescue{APIVersion: spec.APIVersion, Kind: spec.KindRescue, Node: node,
		Lasts: int64(r.lasts / time.Second), Console: r.console, Reason: r.reason, At: now()}
	if r.lasts > spec.MaxRescue {
		return doc, cli.Usage("whoever is in, and needs longer, reads the node's next code", "--for is at most %s", spec.MaxRescue)
	}
	if doc.Code, err = spec.ParseCode(r.code); err != nil {
		return doc, cli.Usage("it is on the console of a node that does not come up, and in 'caisson-agent status' for root", "%w", err)
	}
	for _, name := range r.sshKeys {
		data, err := os.ReadFile(name)
		if err != nil {
			return doc, fmt.Errorf("ssh key: %w", err)
		}
		if strings.Contains(string(data), "PRIVATE KEY-----") {
			return doc, cli.Usage("the public half is in the file whose name ends in .pub", "%s is a private key", name)
		}
		for line := range strings.Lines(string(data)) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' {
				doc.SSHKeys = append(doc.SSHKeys, line)
			}
		}
	}
	if r.site, err = a.loadNamed(names...); err != nil {
		return doc, err
	}
	doc.Fleet = r.site.Name()
	if r.policy, err = policy.Site(r.site, ""); err != nil {
		return doc, err
	}
	if r.policy.Chain == nil || len(r.policy.Rescue) == 0 {
		return doc, cli.Usage("docs/rescue.md: name one in trust.keys.rescue, and run 'caisson keys rotate'",
			"the site has no rescue key that nodes know of")
	}
	if r.file != "" { // the registry is not asked, so the file beside the site says what counts
		if err := r.counts(r.policy.Chain); err != nil {
			return doc, err
		}
	}
	byHardware := strings.HasPrefix(node, "mac-") || strings.HasPrefix(node, "uuid-")
	if !byHardware && !r.site.Fleet().Has(node) || !oci.ValidTag(node) {
		return doc, cli.Usage("a node of the site, or mac-… or uuid-… of a machine that does not know its name", "the site has no node %q", node)
	}
	return doc, nil
}

// publish signs for each of the names, by the keys that count now, and returns where the statement
// for the first is.
func (r *rescuing) publish(ctx context.Context, a *app, site string, doc spec.Rescue, names []string, by []crypto.Signer) (string, error) {
	r.to = cmp.Or(r.to, r.site.Registry())
	p, err := r.open(a, site, nil, true)
	if err != nil {
		return "", err
	}
	current, err := p.Follow(ctx, r.policy, false)
	if err != nil {
		return "", err
	}
	if err := r.counts(current.Chain); err != nil {
		return "", err
	}
	r.sayOlder(ctx, a, p, current, doc.Node)
	for _, name := range names {
		doc.Node = name
		c, err := publish.SignRescue(current, doc, by)
		if err != nil {
			return "", err
		}
		if err := p.PutRescue(ctx, name, c); err != nil {
			return "", err
		}
	}
	return r.to + "/" + oci.RepoRescue + ":" + names[0], nil
}

// counts refuses a chain that does not have the site's rescue keys yet: nodes would pass over
// what they sign. One that has others is for who signs to answer.
func (r *rescuing) counts(c *chain.Chain) error {
	newest := c.Newest().Keys
	if r.file != "" {
		changes, err := publish.CompareRoles(newest.Roles, r.policy.Roles())
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(changes, func(c publish.RoleChange) bool { return c.Role == "rescue" }) {
			return nil
		}
	} else if len(newest.Roles.Rescue.Keys) > 0 {
		return nil
	}
	return cli.Usage("run 'caisson keys rotate' first, or 'caisson keys pull' where somebody else did",
		"version %d of the keys does not have the site's rescue keys", newest.Version)
}

// sayOlder says where the node's layer has an agent that passes over the statement. Whether that
// is known does not keep anybody from trying.
func (r *rescuing) sayOlder(ctx context.Context, a *app, p *publish.Publisher, current publish.Policy, node string) {
	current.Site = false
	var older []string
	found, err := p.Find(ctx, current)
	if err == nil {
		older, err = found.WithoutFeature(ctx, spec.RescueFeature)
	}
	switch {
	case err != nil:
		a.say("whether the agent of %s obeys this is not known: %v", node, err)
	case slices.Contains(older, node):
		a.say("the agent of %s is older and passes over this: its next layer has one that obeys; a loader of now does at the next boot", node)
	}
}
