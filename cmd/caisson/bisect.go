// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/sandbox/culprit"
	"github.com/caisson-os/caisson/spec"
)

// bisectFlags are the flags of bisect.
type bisectFlags struct {
	try             tryFlags
	look            looking
	from, good, bad string
	most            int
}

func (a *app) bisectCommand() *cobra.Command {
	var f bisectFlags
	c := verb("bisect", func(c *cobra.Command, names []string) error {
		return a.bisect(c.Context(), f, names)
	})
	fs := c.Flags()
	fs.StringVar(&f.from, "from", "", "where the site is published; the site's registry when absent")
	fs.StringVar(&f.good, "good", "", "a generation, `GEN`, with which the check passes")
	fs.StringVar(&f.bad, "bad", "", "a generation, `GEN`, with which it does not; the newest when absent")
	fs.IntVar(&f.most, "most", 40, "boot at most `N` machines; the same command goes on")
	f.try.machine(fs)
	fs.StringVar(&f.try.build.cache, "cache", "", "directory kept between builds "+cacheDefault)
	fs.StringVar(&f.look.known.remember, "remember", "",
		"`FILE` that remembers what was published (caisson.memory beside the site when empty)")
	f.look.reach.flags(a, fs)
	return c
}

func (a *app) bisect(ctx context.Context, f bisectFlags, names []string) error {
	switch {
	case f.try.node == "" || f.good == "":
		return cli.Usage("'caisson history REF --node NAME' lists what a node had",
			"--node says which node, and --good a generation with which it was well")
	case f.most < 1:
		return cli.Usage("", "--most %d: it takes a machine at least", f.most)
	}
	if err := f.try.check(); err != nil {
		return err
	}
	s, err := a.loadSite(names...)
	if err != nil {
		return err
	}
	n := &culprit.Node{Name: f.try.node, Site: s, Checks: f.try.checks, Within: f.try.timeout,
		Then: func(commit string) []spec.BootNetwork { return a.bootNetworkAt(ctx, s, names, commit) }}
	if n.Box, err = a.boxOptions(&f.try); err != nil {
		return err
	}
	f.look.whom.site, f.look.known.remember = names, cmp.Or(f.look.known.remember, memoryName(names[0]))
	ref := cmp.Or(f.from, s.Registry())
	if n.Fleet, err = f.look.open(ctx, a, ref); err != nil {
		return err
	}
	if n.From, err = f.look.reach.existing(ref); err != nil {
		return err
	}
	n.Box.Console = io.Discard // of ten machines nobody reads it
	said := false
	n.Tell = func(box *sandbox.Box) {
		if why := box.Emulated(); why != nil && !said {
			said = true
			a.say("the processor is emulated, several times slower than by KVM: %v", why)
		}
	}
	r, err := n.Find(ctx, culprit.Question{Good: f.good, Bad: f.bad, Cache: f.try.build.cache, Most: f.most}, a.say)
	if err != nil {
		return full(err, n.Box.Dir)
	}
	return a.print(r)
}
