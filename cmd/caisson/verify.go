// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
)

func (a *app) verifyCommand() *cobra.Command {
	var nodes []string
	var images bool
	var look looking
	c := verb("verify", func(c *cobra.Command, args []string) error {
		if err := look.trustsSomebody(args[0]); err != nil {
			return err
		}
		p, err := look.publisher(a, args[0], nil)
		if err != nil {
			return err
		}
		if keys := len(look.whom.keys); keys > 1 && look.whom.threshold == 0 {
			a.say("no --threshold: all %d keys must have signed", keys)
		}
		p.Images = images
		report, err := p.Verify(c.Context(), *p.Trust, nodes)
		if err != nil {
			return err
		}
		err = a.show(report, func() { a.printFindings(report.Findings) })
		if err == nil && !report.OK() {
			return errUnverified
		}
		return err
	})
	f := c.Flags()
	look.flags(a, f)
	f.StringArrayVar(&look.whom.keys, "key", nil, "the same as --trust")
	f.StringArrayVar(&nodes, "node", nil, "verify this node only; may be repeated")
	f.BoolVar(&images, "images", false, "read the images of the layers, too")
	return c
}

// printFindings prints what was verified: nodes that are as they should be together where
// they are many, and everything else by itself.
func (a *app) printFindings(list []publish.Check) {
	var fine []string
	for _, f := range list {
		if name, ok := strings.CutPrefix(f.What, "node:"); ok && f.Verdict == "ok" && f.Detail == "" {
			fine = append(fine, name)
		}
	}
	many := len(fine) > fewNodes
	if many {
		cli.Printf(a.out, "ok\t%s\t%s\n", plain.Count(len(fine), "node"), plain.Some(fine, fewNodes))
	}
	for _, f := range list {
		if !many || f.Verdict != "ok" || f.Detail != "" || !strings.HasPrefix(f.What, "node:") {
			cli.Printf(a.out, "%s\t%s\t%s\n", f.Verdict, f.What, f.Detail)
		}
	}
}

var errUnverified error = unverified{}

type unverified struct{}

func (unverified) Error() string {
	return "verification failed: nodes would refuse part of it, or it is not what fleet:index says"
}
func (unverified) ExitCode() int { return cli.ExitRefused }
