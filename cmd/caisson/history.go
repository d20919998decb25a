// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto"
	"path/filepath"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site/plan"
)

func (a *app) historyCommand() *cobra.Command {
	var node, key string
	var look looking
	var advisories advisoryFlag
	c := verb("history", func(c *cobra.Command, args []string) error {
		switch {
		case key != "" && node == "":
			return cli.Usage("name the node, as in --node superhost", "--key is about one node")
		case len(args) == 2 && node != "":
			return cli.Usage("'caisson diff REF GEN GEN --node NAME' compares a node", "GEN is shown whole, and --node is about one node")
		case len(args) == 1 && advisories != "":
			return cli.Usage("name one, as in 'caisson history REF 45 --advisories tracker.json'", "--advisories is about what one generation changed")
		}
		by, err := advisories.layers(look.whom.site)
		if err != nil {
			return err
		}
		fleet, err := look.open(c.Context(), a, args[0])
		if err != nil {
			return err
		}
		names, err := look.whom.names(a)
		if err != nil {
			return err
		}
		if len(args) == 2 {
			return a.generation(c.Context(), fleet, args[1], names, by)
		}
		var list []history.Entry
		if key != "" {
			list, err = history.Setting(c.Context(), fleet, node, key, names)
		} else {
			list, err = history.List(c.Context(), fleet, node, names)
		}
		if err != nil {
			return err
		}
		if len(list) == 0 {
			a.say("no generation that is kept has it")
		}
		return a.show(list, func() { history.Write(a.out, list) })
	})
	c.Flags().StringVar(&node, "node", "", "show what changed for this node")
	c.Flags().StringVar(&key, "key", "", "with --node: show when the setting KIND/`KEY` changed, or one below it")
	advisories.flag(c.Flags())
	look.flags(a, c.Flags())
	return c
}

// generation prints one generation of a fleet, and what it changed.
func (a *app) generation(ctx context.Context, fleet *publish.Fleet, text string, names map[string]string, by plan.Advise) error {
	g, err := fleet.Find(ctx, text)
	if err != nil {
		return err
	}
	d, err := history.Show(ctx, fleet, g, names, by)
	if err != nil {
		return err
	}
	return a.print(d)
}

// looking says whose fleet is looked at, and where.
type looking struct {
	reach access
	whom  trustFlags
	known memoryFlags
	kept  *publish.Shards // of who looks again and again; nil keeps nothing
}

func (l *looking) flags(a *app, f *pflag.FlagSet) {
	l.whom.flags(f)
	f.StringVar(&l.known.remember, "remember", "", "`FILE` that remembers what was published (caisson.memory beside the site when empty)")
	l.reach.flags(a, f)
}

// open reads a published fleet with the keys that are trusted, and changes nothing. It says
// what is not published yet.
func (l *looking) open(ctx context.Context, a *app, ref string) (*publish.Fleet, error) {
	f, err := l.read(ctx, a, ref)
	if err != nil {
		return nil, err
	}
	unfinished, err := f.Unfinished(ctx)
	if unfinished != "" {
		a.say("publish unfinished; showing the state before it: %s", unfinished)
	}
	return f, err
}

// read is open for who says it otherwise.
func (l *looking) read(ctx context.Context, a *app, ref string) (*publish.Fleet, error) {
	if err := l.trustsSomebody(ref); err != nil {
		return nil, err
	}
	p, err := l.publisher(a, ref, nil)
	if err != nil {
		return nil, err
	}
	p.AcceptExpired = true // nothing is signed again
	p.Kept = l.kept
	return p.Look(ctx)
}

// publisher opens what is published, as the flags say.
func (l *looking) publisher(a *app, ref string, by []crypto.Signer) (*publish.Publisher, error) {
	r, err := l.reach.existing(ref)
	if err != nil {
		return nil, err
	}
	return a.publisher(r, by, &l.whom, l.known)
}

func (l *looking) trustsSomebody(ref string) error {
	if l.whom.nobody() {
		return trustsNobody(ref)
	}
	return nil
}

// trustsNobody is the error of a verb that was given no key to verify ref with.
func trustsNobody(ref string) error {
	if err := notASite(ref); err != nil {
		return err
	}
	return cli.Usage("--site FILE is the site that is published there; --trust PUB the public half of an operator's key",
		"no public key to verify with: give --site or --trust")
}

// notASite refuses a site where it is asked where a fleet is published.
func notASite(ref string) error {
	if ext := filepath.Ext(ref); ext != ".yaml" && ext != ".yml" {
		return nil
	}
	return cli.Usage("it takes where the fleet is published first, as in oci:./out --site "+ref,
		"%s is a site, and not where one is published", ref)
}
