// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/mirror"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
)

// copyFlags are the flags of copy.
type copyFlags struct {
	from, to           access
	fromPlain, toPlain bool
	whom               trustFlags
	known              memoryFlags
	unverified         bool
	dry                bool
}

func (a *app) copyCommand() *cobra.Command {
	var f copyFlags
	c := verb("copy", func(c *cobra.Command, args []string) error { return a.copy(c.Context(), f, args[0], args[1]) })
	f.from.flags(a, c.Flags())
	c.Flags().BoolVar(&f.fromPlain, "from-plain-http", false, "talk HTTP to SRC only")
	c.Flags().BoolVar(&f.toPlain, "to-plain-http", false, "talk HTTP to DST only")
	f.whom.flags(c.Flags())
	c.Flags().StringVar(&f.known.remember, "remember", "",
		"`FILE` that remembers what was published at SRC (caisson.memory beside the site when empty)")
	c.Flags().BoolVar(&f.unverified, "unverified", false, "copy whatever is there, for example to look at it elsewhere")
	dryFlag(c.Flags(), &f.dry)
	c.Flags().Lookup("dry-run").Usage = "say what would be copied, and copy nothing"
	return c
}

func (a *app) copy(ctx context.Context, f copyFlags, src, dst string) error {
	if f.unverified == f.whom.said() {
		return cli.Usage("--site FILE has all keys; --unverified copies whatever is there",
			"what is copied is verified with --site or --trust, or not at all with --unverified")
	}
	ref, reference, err := release.ParseName(src)
	if err != nil {
		return err
	}
	one := ref != src
	if one && len(f.whom.keys) > 0 {
		return cli.Usage("--site FILE names the release keys", "--trust names operators, who do not sign layers")
	}
	f.to = f.from
	f.from.plainHTTP = f.from.plainHTTP || f.fromPlain
	f.to.plainHTTP = f.to.plainHTTP || f.toPlain
	from, err := f.from.existing(ref)
	if err != nil {
		return err
	}
	to, err := f.to.open(dst)
	if err != nil {
		return err
	}
	m := &mirror.Mirror{Say: a.say, Dry: f.dry, To: &publish.Publisher{Registry: to, Now: now(), Say: a.say}}
	if m.From, err = a.publisher(from, nil, &f.whom, f.known); err != nil {
		return err
	}
	if m.Policy = m.From.Trust; m.Policy == nil {
		a.say("warning: nothing is verified: whoever can push to %s chooses what is copied", from.Ref())
	}
	var result *mirror.Result
	if one {
		result, err = m.Layer(ctx, reference)
	} else {
		result, err = m.Fleet(ctx)
	}
	if err != nil {
		return err
	}
	return a.printTold(result)
}
