// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/internal/cli"
)

// app is what every verb gets: where to print, and how.
type app struct {
	out    io.Writer // results
	err    io.Writer // talk
	format string    // "text" or "json"
}

func newApp(out, err io.Writer) *app { return &app{out: out, err: err} }

// say prints a line of talk.
func (a *app) say(format string, args ...any) { cli.Sayf(a.err, "caisson", format, args...) }

// json says whether -o json was given.
func (a *app) json() bool { return a.format == "json" }

// root is the command line. The list is the order of --help.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:           "caisson",
		Short:         "Build, sign and publish what a fleet of metal boots",
		Long:          "Build, sign and publish what a fleet of metal boots.\n\n" + cli.ExitCodes,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			if a.format != "text" && a.format != "json" {
				return cli.Usage("one of: text, json", "unknown output format %q", a.format)
			}
			return nil
		},
	}
	root.SetOut(a.out)
	root.SetErr(a.err)
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return cli.Usage("see '"+c.CommandPath()+" --help'", "%w", err)
	})
	root.PersistentFlags().StringVarP(&a.format, "output", "o", "text", "output format: text or json")
	root.AddCommand(
		a.initCommand(),
		a.validateCommand(),
		a.explainCommand(),
		a.planCommand(),
		a.buildCommand(),
		a.lockCommand(),
		a.inspectCommand(),
		a.diffCommand(),
		a.pruneCommand(),
		a.netbootCommand(),
		a.publishCommand(),
		a.pinCommand(),
		a.refreshCommand(),
		a.verifyCommand(),
		a.serveCommand(),
		a.keysCommand(),
		a.importCommand(),
		a.manCommand(),
		a.versionCommand(),
	)
	strict(root)
	return root
}

// strict makes every wrong call an error of its own exit code, and an unknown
// verb of a group (caisson keys bogus) an error at all.
func strict(c *cobra.Command) {
	help := "see '" + c.CommandPath() + " --help'"
	if c.Run == nil && c.RunE == nil {
		c.Args = cobra.NoArgs
		c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	} else {
		help = "usage: " + c.UseLine()
	}
	if check := c.Args; check != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return cli.Usage(help, "%w", err)
			}
			return nil
		}
	}
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if err := c.ValidateRequiredFlags(); err != nil {
			return cli.Usage(help, "%w", err)
		}
		return nil
	}
	for _, sub := range c.Commands() {
		strict(sub)
	}
}
