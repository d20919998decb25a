// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
)

func (a *app) verifyCommand() *cobra.Command {
	var keys, nodes []string
	var reach access
	c := &cobra.Command{
		Use:   "verify REF --key PUB",
		Short: "Look at a published fleet with the eyes of its nodes",
		Long: "Look at a published fleet with the eyes of its nodes: every overlay under its name, fleet:current,\n" +
			"and the release signature of every layer that is named. Exit code 4: something would be refused.",
		Example: "  caisson verify registry.example.org:5000/metal-a --key keys/operator.pub",
		Args:    cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if len(keys) == 0 {
				return cli.Usage("nodes know it from their bootstrap", "no public key to verify with: give --key")
			}
			pubs, err := readPublics(keys)
			if err != nil {
				return err
			}
			r, err := reach.existing(args[0])
			if err != nil {
				return err
			}
			report, err := a.publisher(r, nil).Verify(c.Context(), pubs, nodes)
			if err != nil {
				return err
			}
			if a.json() {
				if err := cli.JSON(a.out, report); err != nil {
					return err
				}
			} else {
				for _, f := range report.Findings {
					cli.Printf(a.out, "%s\t%s\t%s\n", f.Verdict, f.What, f.Detail)
				}
			}
			if !report.OK() {
				return errUnverified
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringArrayVar(&keys, "key", nil, "an operator's public key `FILE`; several for a threshold")
	f.StringArrayVar(&nodes, "node", nil, "look at this node only; several are possible")
	reach.flags(f)
	return c
}

var errUnverified error = unverified{}

type unverified struct{}

func (unverified) Error() string { return "nodes would not believe all of it" }
func (unverified) ExitCode() int { return cli.ExitRefused }
