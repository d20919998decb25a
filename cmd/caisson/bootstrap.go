// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/policy"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/media/netboot"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// bootstrapped is the output of bootstrap -o json where it writes a file; else it prints what
// would be in it.
type bootstrapped struct {
	File string `json:"file"`
}

func (a *app) bootstrapCommand() *cobra.Command {
	var f nodesAsk
	var reach access
	var from, out string
	c := verb("bootstrap", func(c *cobra.Command, names []string) error {
		if out != "" {
			if err := writable("--out", out); err != nil {
				return err
			}
		}
		s, err := a.loadSite(names...)
		if err != nil {
			return err
		}
		o, err := reach.options(f.ask)
		if err != nil {
			return err
		}
		b, err := f.anchor(s, o.CAs)
		if err != nil {
			return err
		}
		from = cmp.Or(from, s.Registry())
		if b, err = a.follows(c.Context(), b, s, reach, from, names[0]); err != nil {
			return err
		}
		data, err := spec.Encode(netboot.ForHost(b))
		if err != nil {
			return err
		}
		if out == "" {
			_, err = a.out.Write(append(data, '\n'))
			return err
		}
		if err := durable.WriteFile(out, data, 0o644); err != nil {
			return fmt.Errorf("write site.json: %w", err)
		}
		return a.show(bootstrapped{out}, func() {
			cli.Printf(a.out, "%s\n", out)
			a.say("on the host: caisson-agent enroll --site %s", out)
		})
	})
	f.flags(c.Flags())
	reach.flags(a, c.Flags())
	c.Flags().StringVar(&from, "from", "", "registry or layout where the fleet is published (the site's own when empty)")
	c.Flags().StringVar(&out, "out", "", "`FILE` to write; standard output when empty")
	return c
}

// follows returns a bootstrap with the keys that count now. Where the site has no versions of
// them, no registry is asked.
func (a *app) follows(ctx context.Context, b spec.Bootstrap, s *site.Site, reach access, from, file string) (spec.Bootstrap, error) {
	if b.Chain == nil {
		return b, nil
	}
	reg, err := reach.existing(from)
	if err != nil {
		return b, err
	}
	p, err := a.besideSite(reg, file)
	if err != nil {
		return b, err
	}
	known, err := policy.Versions(s)
	if err != nil {
		return b, err
	}
	known, err = p.Newest(ctx, known)
	return netboot.Follow(b, known.Chain), err
}
