// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/replace"
	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/inventory"
)

// replacing are the flags of fleet replace.
type replacing struct {
	at                      asking
	machine, key, recipient string
	macs, uuids             []string
	sameDisk, dry           bool
}

func (a *app) fleetReplaceCommand() *cobra.Command {
	var x replacing
	c := verb("fleet replace", func(c *cobra.Command, args []string) error {
		return a.fleetReplace(c.Context(), &x, args[:len(args)-1], args[len(args)-1])
	})
	f := c.Flags()
	f.StringVar(&x.machine, "machine", "", "the unknown machine with this MAC address or UUID comes: `ID`")
	f.StringArrayVar(&x.macs, "mac", nil, "the machine that comes has this `MAC` address; several are possible")
	f.StringArrayVar(&x.uuids, "uuid", nil, "the machine that comes has this SMBIOS product `UUID`")
	f.StringVar(&x.recipient, "recipient", "", "the `RECIPIENT` that the new machine shows: age1…")
	f.StringVar(&x.key, "report-key", "", "the `KEY` of reports that 'caisson-agent report' on the new machine prints")
	f.BoolVar(&x.sameDisk, "same-disk", false, "the state disk moved along, and with it both keys")
	f.BoolVar(&x.dry, "dry-run", false, "say what would change and what the present machine has, and change nothing")
	x.at.flags(f)
	return c
}

func (a *app) fleetReplace(ctx context.Context, x *replacing, files []string, node string) error {
	named := x.machine != "" || len(x.macs)+len(x.uuids) > 0
	switch {
	case slices.Contains(files, "-"):
		return cli.Usage("name the files", "a site from standard input is not changed")
	case x.machine != "" && len(x.macs)+len(x.uuids) > 0:
		return cli.Usage("", "give either --machine or --mac and --uuid")
	case !named && x.recipient+x.key == "" && !x.dry:
		return cli.Usage("'caisson unknown' and the page /replace/"+node+" list machines; --dry-run says what the present one has",
			"which machine comes? --machine, --mac or --uuid says it, and --recipient and --report-key what another disk brought")
	case x.sameDisk && x.recipient+x.key != "":
		return cli.Usage("", "--same-disk says that both keys stay: give no other one")
	}
	s, err := a.loadNamed(files...)
	if err != nil {
		return err
	}
	m := replace.Machine{SameDisk: x.sameDisk, Accepted: seal.Accepted{Node: node, Recipient: x.recipient, Since: now(), By: self()}}
	if m.Match, err = a.machineOf(ctx, x); err != nil {
		return err
	}
	change, err := replace.Plan(hostFiles{}, files, s, node, m)
	if err != nil {
		return err
	}
	change.DryRun, change.ReportKey, change.Asked = x.dry, x.key, x.at.Named() || x.machine+x.key != ""
	takes := false // a key that does not count already
	if change.Asked {
		n, err := x.at.Node(ctx, node)
		if err == nil && (n.Detail == nil || n.Name != node) {
			err = fmt.Errorf("the fleet's service answers about another node than %s", node)
		}
		var list server.Rollouts
		if err = cmp.Or(err, x.at.Get(ctx, "/v1/rollouts", &list)); err != nil {
			return err
		}
		takes = x.key != "" && (n.Key != x.key || n.Grade != spec.KeyPinned)
		change.Still = n.Still(list.Rollouts, commandsFor(s, files, &x.at))
	}
	change.Changed = change.Changed || takes
	change.Follow(files, m)
	if !x.dry {
		if err := change.Save(); err != nil {
			return err
		}
		if takes {
			if err := x.at.Post(ctx, "/v1/nodes/"+url.PathEscape(node)+"/accept", x.key); err != nil {
				return cli.WithHint(fmt.Errorf("the files are written, the key is not accepted: %w", err), "run this again")
			}
		}
	}
	return a.show(change.Result, func() {
		change.Write(a.out)
		switch {
		case !change.Asked:
			a.say("no service was asked what else it has: --at names one")
		case !change.Changed && !x.dry:
			a.say("nothing changed: all of it is as you say already")
		}
	})
}

// commandsFor writes commands about a site as somebody types them who has its files here.
func commandsFor(s *site.Site, files []string, at *asking) query.Commands {
	var v serving
	v.look.whom = trustFlags{site: files, loaded: s}
	names := v.names()
	looks := func(verb, more string) string {
		return "caisson " + verb + " " + cli.ShellWord(cmp.Or(s.Registry(), "REF")) + " " + names.Verifies + more
	}
	c := query.Commands{Looks: looks, Publishes: func(verb, more string) string { return looks(verb, more) + " " + names.Signs }}
	if at.At != "" {
		c.Service += " --at " + cli.ShellWord(at.At)
	}
	if at.TokenFile != "" {
		c.Service += " --token-file " + cli.ShellWord(at.TokenFile)
	}
	return c
}

// machineOf returns the identifiers of the machine that comes.
func (a *app) machineOf(ctx context.Context, x *replacing) (m spec.Match, err error) {
	if x.machine != "" {
		id := x.machine
		if mac, err := inventory.ParseMAC(id); err == nil {
			id = mac
		}
		var list server.Unknown
		if err := x.at.Get(ctx, "/v1/unknown", &list); err != nil {
			return m, err
		}
		switch {
		case !list.Known:
			return m, cli.Usage("give --mac and --uuid", "the service does not know who asked in vain")
		case list.Trouble != "":
			return m, fmt.Errorf("the service cannot read who asked in vain: %s", plain.Line(list.Trouble))
		}
		found, err := unknown.Find(unknown.Clean(list.Machines), id)
		if err != nil {
			return m, err
		}
		a.say("unproven, compare it with the machine: it asked as %s", plain.Line(found.Says()))
		x.macs, x.uuids = found.MACs, found.UUIDs
	}
	for _, text := range x.macs {
		mac, err := inventory.ParseMAC(text)
		if err != nil {
			return m, cli.Usage("as in 52:54:00:12:34:56", "%w", err)
		}
		m.MACs = append(m.MACs, mac)
	}
	for _, text := range x.uuids {
		m.UUIDs = append(m.UUIDs, strings.ToLower(text)) // the site is read with it
	}
	return m, nil
}
