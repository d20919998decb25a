// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
)

func (a *app) fleetCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "fleet",
		Short: "Show published and reported states of nodes",
		Long: "Show published and reported states of nodes. 'serve' receives the reports of nodes and shows them; the other\n" +
			"verbs query it. No node obeys the service: nodes obey signatures.",
	}
	c.AddCommand(a.fleetServeCommand(), a.fleetRelayCommand(), a.fleetStatusCommand(), a.fleetDiffCommand(),
		a.fleetAcceptCommand(), a.fleetReplaceCommand(), a.fleetSlotsCommand(), a.fleetAuditCommand(),
		a.fleetTokenCommand(), a.fleetBackupCommand())
	return c
}

func (a *app) fleetDiffCommand() *cobra.Command {
	var x storedReports
	c := &cobra.Command{
		Use:   "diff",
		Short: "List nodes whose state differs from what is published",
		Long: "List the nodes that have reported and run something else than is published for them. Exit code 3: there are\n" +
			"some. Nodes that never reported are in 'fleet status'.\n\n" + fromHelp,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return a.fleetShown(c.Context(), &x, func(of shown) error {
				list, err := of.nodes(c.Context(), url.Values{"differs": {"1"}})
				if err != nil {
					return err
				}
				return cmp.Or(a.show(fleetDiff{append([]view.Line{}, list.Nodes...)},
					func() { a.printLines(list.Nodes, x.limit) }), drift(len(list.Nodes) > 0))
			})
		},
	}
	x.flags(a, c.Flags())
	return c
}

// fleetDiff is the output of fleet diff -o json.
type fleetDiff struct {
	Nodes []view.Line `json:"nodes"`
}

func (a *app) fleetAcceptCommand() *cobra.Command {
	var at asking
	c := &cobra.Command{
		Use:   "accept NODE KEY",
		Short: "Accept or pin the reporting key of a node",
		Long: "Accept a key for a node: it counts from now on, or from its first report on where it has not reported yet, and no\n" +
			"earlier key comes back by itself. A node has another key when its state disk was replaced or emptied; otherwise\n" +
			"another machine may report in its name. A key that counts for one boot, though the node has a state disk, is\n" +
			"pinned by that. KEY is the id that 'caisson-agent report' prints on the node; the node's page has that of the key\n" +
			"which reports. A KEY that is a digest is what the node's TPM showed last, as 'fleet status NODE' has it: that is how\n" +
			"the machine boots from now on, see docs/keys.md.",
		Example: "  caisson fleet accept n1 bcYdxJIdBqKgp1p3aq1QcVx0Y4ISThEqzGAKIsFmuyU=",
		Args:    cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := at.post(c.Context(), "/v1/nodes/"+url.PathEscape(args[0])+"/accept", args[1]); err != nil {
				return err
			}
			return a.show(map[string]string{"node": args[0]}, func() {
				a.say("the key %s counts for %s, from its next report on where it has not reported yet", args[1], args[0])
			})
		},
	}
	at.flags(c.Flags())
	return c
}

func (a *app) fleetSlotsCommand() *cobra.Command {
	var at asking
	c := &cobra.Command{
		Use:   "slots",
		Short: "List slots and their holders; release slots",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			var s fleetSlots
			if err := at.get(c.Context(), "/v1/slots", &s); err != nil {
				return err
			}
			return a.show(s, func() {
				for _, g := range s.Groups {
					cli.Printf(a.out, "%s: %d of %d\n", g.Name, len(g.Held), g.Max)
					for _, l := range g.Held {
						waits := ""
						if l.Draining {
							waits = ", being drained"
						}
						cli.Printf(a.out, "  %s since %s%s\n", l.Node, l.Since.Format(time.RFC3339), waits)
					}
				}
			})
		},
	}
	at.flags(c.Flags())
	var reason string
	var by asking
	release := &cobra.Command{
		Use:   "release GROUP NODE --reason TEXT",
		Short: "Release a slot that a node still holds",
		Args:  cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error {
			if err := by.post(c.Context(), "/v1/slots/"+url.PathEscape(args[0])+"/"+url.PathEscape(args[1])+"/release", reason); err != nil {
				return err
			}
			return a.show(map[string]string{"group": args[0], "node": args[1]}, func() {
				a.say("%s holds no slot of %s any more", args[1], args[0])
			})
		},
	}
	release.Flags().StringVar(&reason, "reason", "", "why, for the node's history")
	cobra.CheckErr(release.MarkFlagRequired("reason"))
	by.flags(release.Flags())
	c.AddCommand(release)
	return c
}

// fleetSlots is the output of fleet slots -o json.
type fleetSlots struct {
	Groups []hub.Group `json:"groups"`
}

func (a *app) fleetTokenCommand() *cobra.Command {
	var file, role string
	c := &cobra.Command{
		Use:   "token NAME --role ROLE --tokens FILE",
		Short: "Create a token for the service, and print it once",
		Long: "Make a token for the service, print it, and add its line to a file: role, name and SHA-256. To\n" +
			"remove a token, remove its line. A reader sees everything, a reporter may report and ask for slots, an\n" +
			"operator may also accept keys and release slots, and drain may read and say that a node is drained. A new file has the line 'reports open', by which nodes need no\n" +
			"token; the first token of role reporter removes that line, and without both no node may report.",
		Example: "  caisson fleet token grafana --role reader --tokens /etc/caisson/fleet.tokens",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if roles := []string{"reader", "reporter", "operator", "drain"}; !slices.Contains(roles, role) {
				return cli.Usage("one of: reader, reporter, operator, drain", "unknown role %q", role)
			}
			if err := writable("--tokens", file); err != nil {
				return err
			}
			token, err := server.AddToken(file, args[0], server.Role(role))
			if err != nil {
				return err
			}
			return a.show(map[string]string{"name": args[0], "role": role, "token": token}, func() { fmt.Fprintln(a.out, token) })
		},
	}
	c.Flags().StringVar(&role, "role", "reader", "what it allows: reader, reporter, operator or drain")
	c.Flags().StringVar(&file, "tokens", "", "`FILE` of the service's tokens, mode 0600; it is made where it is missing")
	cobra.CheckErr(c.MarkFlagRequired("tokens"))
	return c
}

func (a *app) fleetBackupCommand() *cobra.Command {
	var db string
	c := &cobra.Command{
		Use:   "backup --db sqlite:FILE NEW",
		Short: "Back up the database of a running service",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := store.Existing(c.Context(), db)
			if err != nil {
				return err
			}
			defer s.Close() // it was only read
			if err := s.Backup(c.Context(), args[0]); err != nil {
				return err
			}
			return a.show(map[string]string{"file": args[0]}, func() { a.say("%s is a copy of %s", args[0], s.Place()) })
		},
	}
	c.Flags().StringVar(&db, "db", usualDB, "the database")
	return c
}
