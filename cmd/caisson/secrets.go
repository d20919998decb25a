// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/keys"
	"github.com/caisson-os/caisson/spec/site"
)

// opening are the flags that say what opens a site's secrets.
type opening struct {
	identities []string
	commands   bool
	cluster    bool
	within     time.Duration
}

// flags are those of a verb that seals.
func (x *opening) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&x.identities, "identity", nil, "open secrets with the age key in `FILE`, env:NAME or fd:N; several "+
		"are possible ($CAISSON_IDENTITY)")
	f.DurationVar(&x.within, "secret-timeout", time.Minute, "how long the command of a secret may take")
}

// looking are those of a verb that only looks: it runs no program of a site unless a flag says so.
func (x *opening) looking(f *pflag.FlagSet) {
	x.flags(f)
	f.BoolVar(&x.commands, "run-commands", false, "run the commands of secrets, to see whether their values have changed")
	f.BoolVar(&x.cluster, "read-secrets", false, "have kubectl read the Secrets that secrets name, to see whether their values have changed")
}

// open seals what is to be sealed to nodes of a site, all of them when nil; nil where the site
// has no secrets. What must is an error otherwise is left as it was sealed.
func (x *opening) open(ctx context.Context, from *fromCluster, s *site.Site, nodes []string, must bool) (*seal.Sealer, error) {
	if len(s.Secrets()) == 0 {
		return nil, nil
	}
	sealer, err := seal.Open(s)
	if err != nil {
		return nil, err
	}
	sealer.Must, sealer.Commands, sealer.Timeout = must, must || x.commands, x.within
	if from.on && (must || x.cluster) {
		sealer.Cluster = from.Secret
	}
	if err := x.identify(sealer); err != nil {
		return nil, err
	}
	if nodes == nil {
		nodes = s.Fleet().Names()
	}
	return sealer, sealer.Seal(ctx, nodes)
}

// identify gives a sealer the keys that open files.
func (x *opening) identify(sealer *seal.Sealer) error {
	sources := x.identities
	if name := os.Getenv("CAISSON_IDENTITY"); name != "" && len(sources) == 0 {
		sources = []string{name}
	}
	for _, source := range sources {
		text, err := keys.Read(source)
		if err != nil {
			return fmt.Errorf("identity: %w", err)
		}
		if sealer.Identities == nil {
			sealer.Identities = &seal.Identities{}
		}
		if err := sealer.Identities.Add(source, text); err != nil {
			return err
		}
	}
	return nil
}

// sealed ends [opening.open] for a verb that publishes: what is sealed is written down before.
func (a *app) sealed(sealer *seal.Sealer, dry bool, err error) error {
	if err != nil || sealer == nil {
		return err
	}
	for _, name := range sealer.NotLooked() {
		a.say("secret %s: not looked at", name)
	}
	if without := sealer.Without(); len(without) > 0 {
		a.say("published without their secrets, as no recipient is accepted: %s", plain.Some(without, 5))
	}
	if dry {
		return nil
	}
	return sealer.Write()
}

// sealedOnly has a site's overlays hold what is sealed already.
func sealedOnly(s *site.Site) error {
	if len(s.Secrets()) == 0 {
		return nil
	}
	_, err := seal.Open(s)
	return err
}

func (a *app) secretsAcceptCommand() *cobra.Command {
	var recipient, by string
	var replace bool
	var service asking
	var from fromCluster
	c := verb("secrets accept", func(c *cobra.Command, args []string) error {
		if recipient == "" {
			return cli.Usage("'caisson-agent status' on the node prints it", "--recipient is missing: what a report says alone is not accepted")
		}
		if err := seal.CheckRecipient(recipient); err != nil {
			return cli.Usage("it begins with age1, and has 62 characters", "%w", err)
		}
		files, node := args[:len(args)-1], args[len(args)-1]
		s, err := from.loadNamed(c.Context(), a, files)
		if err != nil {
			return err
		}
		if _, err := s.Fleet().Node(node); err != nil {
			return err
		}
		r, err := seal.ReadRecipients(s.Dir())
		if err != nil {
			return err
		}
		if service.Named() {
			n, err := service.Node(c.Context(), node)
			if err != nil {
				return err
			}
			said := ""
			if n.Report != nil {
				said = n.Report.Recipient
			}
			if said != recipient {
				return cli.WithHint(fmt.Errorf("the report of node %s says %s, not %s: nothing is accepted", node,
					cmp.Or(said, "nothing"), recipient), "look again on the node's console; reports may be forged")
			}
		}
		had, err := r.Accept(seal.Accepted{Node: node, Recipient: recipient, Since: now(), By: cmp.Or(by, self())}, replace)
		if err != nil {
			return err
		}
		if had {
			a.say("node %s has that recipient already", node)
		}
		return a.print(seal.ListOf(s, []string{node}))
	})
	f := c.Flags()
	f.StringVar(&recipient, "recipient", "", "the `RECIPIENT` that the node shows: age1…")
	f.StringVar(&by, "author", "", "who accepts it (the user and this machine when empty)")
	f.BoolVar(&replace, "replace", false, "the node had another one")
	service.flags(f)
	from.flags(c, 1)
	return c
}

func (a *app) secretsListCommand() *cobra.Command {
	var from fromCluster
	c := verb("secrets list", func(c *cobra.Command, args []string) error {
		s, r, err := a.recipients(c.Context(), &from, args)
		if err != nil {
			return err
		}
		nodes := s.Fleet().Names()
		for _, name := range slices.Sorted(maps.Keys(r.Nodes)) { // they left the site, and count again if they come back
			if !s.Fleet().Has(name) {
				nodes = append(nodes, name)
			}
		}
		return a.print(seal.ListOf(s, nodes))
	})
	from.flags(c, 0)
	return c
}

func (a *app) secretsForgetCommand() *cobra.Command {
	var from fromCluster
	c := verb("secrets forget", func(c *cobra.Command, args []string) error {
		files, node := args[:len(args)-1], args[len(args)-1]
		s, r, err := a.recipients(c.Context(), &from, files)
		if err != nil {
			return err
		}
		if _, known := r.Nodes[node]; !known {
			return cli.Usage("'caisson secrets list' lists them", "node %q has no recipient", node)
		}
		if err := r.Forget(node); err != nil {
			return err
		}
		a.say("the next publish leaves out the secrets of node %s; change their values: it has had them", node)
		return a.print(seal.ListOf(s, slices.DeleteFunc([]string{node}, func(name string) bool { return !s.Fleet().Has(name) })))
	})
	from.flags(c, 1)
	return c
}

// recipients reads a site and the recipients beside it.
func (a *app) recipients(ctx context.Context, from *fromCluster, files []string) (*site.Site, *seal.Recipients, error) {
	s, err := from.loadNamed(ctx, a, files)
	if err != nil {
		return nil, nil, err
	}
	r, err := seal.ReadRecipients(s.Dir())
	return s, r, err
}
