// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/audit"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/replace"
	"github.com/caisson-os/caisson/fleet/seal"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/inventory"
)

func (a *app) fleetDiffCommand() *cobra.Command {
	var x storedReports
	c := verb("fleet diff", func(c *cobra.Command, _ []string) error {
		return a.fleetShown(c.Context(), &x, func(of shown) error {
			list, err := of.Nodes(c.Context(), url.Values{"differs": {"1"}})
			if err != nil {
				return err
			}
			return cmp.Or(a.show(fleetDiff{append([]view.Line{}, list.Nodes...)},
				func() { list.Write(a.out, x.limit) }), drift(len(list.Nodes) > 0))
		})
	})
	x.flags(a, c.Flags())
	return c
}

// fleetDiff is the output of fleet diff -o json.
type fleetDiff struct {
	Nodes []view.Line `json:"nodes"`
}

func (a *app) fleetAcceptCommand() *cobra.Command {
	var at asking
	c := verb("fleet accept", func(c *cobra.Command, args []string) error {
		if err := at.Post(c.Context(), "/v1/nodes/"+url.PathEscape(args[0])+"/accept", args[1]); err != nil {
			return err
		}
		return a.show(map[string]string{"node": args[0]}, func() {
			a.say("the key %s counts for %s, from its next report on where it has not reported yet", args[1], args[0])
		})
	})
	at.flags(c.Flags())
	return c
}

func (a *app) fleetSlotsCommand() *cobra.Command {
	var at asking
	c := verb("fleet slots", func(c *cobra.Command, _ []string) error {
		var s server.Slots
		err := at.Get(c.Context(), "/v1/slots", &s)
		return a.print(s, err)
	})
	at.flags(c.Flags())
	var reason string
	var by asking
	release := verb("fleet slots release", func(c *cobra.Command, args []string) error {
		if err := by.Post(c.Context(), "/v1/slots/"+url.PathEscape(args[0])+"/"+url.PathEscape(args[1])+"/release", reason); err != nil {
			return err
		}
		return a.show(map[string]string{"group": args[0], "node": args[1]}, func() {
			a.say("%s holds no slot of %s any more", args[1], args[0])
		})
	})
	release.Flags().StringVar(&reason, "reason", "", "why, for the node's history")
	requireFlags(release, "reason")
	by.flags(release.Flags())
	c.AddCommand(release)
	return c
}

func (a *app) fleetTokenCommand() *cobra.Command {
	var file, role string
	c := verb("fleet token", func(_ *cobra.Command, args []string) error {
		if roles := []string{"reader", "reporter", "operator", "drain"}; !slices.Contains(roles, role) {
			return cli.Usage("one of: reader, reporter, operator, drain", "unknown role %q", role)
		}
		if err := cli.Writable("--tokens", file); err != nil {
			return err
		}
		token, err := people.AddToken(file, args[0], people.Role(role))
		if err != nil {
			return err
		}
		return a.show(map[string]string{"name": args[0], "role": role, "token": token}, func() { fmt.Fprintln(a.out, token) })
	})
	c.Flags().StringVar(&role, "role", "reader", "what it allows: reader, reporter, operator or drain")
	c.Flags().StringVar(&file, "tokens", "", "`FILE` of the service's tokens, mode 0600; it is made where it is missing")
	requireFlags(c, "tokens")
	return c
}

func (a *app) fleetBackupCommand() *cobra.Command {
	var db string
	c := verb("fleet backup", func(c *cobra.Command, args []string) error {
		s, err := store.Existing(c.Context(), db)
		if err != nil {
			return err
		}
		defer s.Close() // it was only read
		if err := s.Backup(c.Context(), args[0]); err != nil {
			return err
		}
		return a.show(map[string]string{"file": args[0]}, func() { a.say("%s is a copy of %s", args[0], s.Place()) })
	})
	c.Flags().StringVar(&db, "db", usualDB, "the database")
	return c
}

// asking are the flags that say how the fleet's service is asked.
type asking struct{ query.Client }

func (x *asking) flags(f *pflag.FlagSet) {
	f.StringVar(&x.At, "at", "", "`URL` of the fleet's service ($CAISSON_FLEET, or "+query.UsualService+")")
	f.StringVar(&x.TokenFile, "token-file", "", "`FILE` with a token of the service, mode 0600 ($CAISSON_FLEET_TOKEN_FILE)")
	f.StringVar(&x.CA, "service-ca", "", "trust only the PEM certificate authorities in `FILE` for the service")
}

// audited is the output of fleet audit -o json.
type audited struct {
	Rows []audit.Row `json:"rows"`
}

// mostActs bounds what a service that has no end can fill here.
const mostActs = 1_000_000

func (a *app) fleetAuditCommand() *cobra.Command {
	var at asking
	var against string
	c := verb("fleet audit", func(c *cobra.Command, _ []string) error { return a.fleetAudit(c.Context(), &at, against) })
	at.flags(c.Flags())
	c.Flags().StringVar(&against, "against", "", "`FILE` with an earlier log, as -o json writes it")
	return c
}

func (a *app) fleetAudit(ctx context.Context, at *asking, against string) error {
	earlier, err := audit.ReadExport(against)
	if err != nil {
		return cli.Usage("'caisson fleet audit -o json >FILE' writes one", "--against %s: %v", against, err)
	}
	rows, err := audit.Whole(mostActs, func(seq int64) ([]audit.Row, error) { return actsAfter(ctx, at, seq) })
	if err == nil {
		err = audit.Same(earlier, rows)
	}
	switch {
	case errors.Is(err, audit.ErrBroken):
		return cli.WithHint(err, "compare the service's database with a backup; nodes obey none of it")
	case errors.Is(err, audit.ErrLong):
		return cli.WithHint(err, "the service's page /audit checks the newest rows")
	case err != nil:
		return err
	}
	return a.show(audited{rows}, func() {
		for _, r := range rows {
			cli.Printf(a.out, "%d\t%s\t%s\t%s\t%s\t%s\n", r.Seq, r.At.Format("2006-01-02 15:04:05"), r.Who, r.Act, r.About, r.Said)
		}
	})
}

// actsAfter asks for one answer's rows.
func actsAfter(ctx context.Context, at *asking, seq int64) (rows []audit.Row, err error) {
	text, err := at.Do(ctx, http.MethodGet, "/v1/acts?after="+strconv.FormatInt(seq, 10), "")
	if err != nil {
		return nil, err
	}
	if rows, err = audit.Read(text); err != nil {
		err = fmt.Errorf("audit log: %w", err)
	}
	return rows, err
}

func (a *app) fleetStatusCommand() *cobra.Command {
	var x storedReports
	q := url.Values{} // as GET /v1/nodes has it
	var labels, settings []string
	c := verb("fleet status", func(c *cobra.Command, args []string) error {
		for name, field := range listFilters {
			if f := c.Flags().Lookup(name); f.Changed {
				if f.Value.String() == "" {
					return cli.Usage("leave it out to list all", "--%s is empty", name)
				}
				q.Set(field.name, f.Value.String())
			}
		}
		for name, words := range map[string][]string{"label": labels, "setting": settings} {
			if len(words) > 0 {
				q[name] = words
			}
		}
		if len(args) == 1 && len(q) > 0 {
			return cli.Usage("a node is shown by itself, or some are listed", "NODE and a flag that lists nodes do not go together")
		}
		return a.fleetShown(c.Context(), &x, func(of shown) error {
			switch {
			case len(args) == 1:
				return a.nodeStatus(c.Context(), of, args[0])
			case len(q) > 0:
				return a.listStatus(c.Context(), of, q, x.limit)
			}
			return a.summaryStatus(c.Context(), of)
		})
	})
	for name, field := range listFilters {
		c.Flags().String(name, "", field.says)
	}
	c.Flags().StringArrayVar(&labels, "label", nil, "list the nodes with the label `KEY=VALUE`; several must all hold")
	c.Flags().StringArrayVar(&settings, "setting", nil,
		"list the nodes that have `KIND/KEY`, or KIND/KEY=VALUE, as in 'caisson explain --where'; several must all hold")
	x.flags(a, c.Flags())
	return c
}

// listFilters are the flags that choose nodes by one word, or sort them, with their names
// in GET /v1/nodes.
var listFilters = map[string]struct{ name, says string }{
	"condition": {"condition", "list the nodes in this condition: " + strings.Join(view.ConditionWords(), ", ")},
	"search":    {"q", "list the nodes with this `TEXT` in the name or in what is wrong"},
	"set":       {"set", "list the nodes of the NodeSet `NAME`"},
	"layer":     {"layer", "list the nodes that run the layer with this `DIGEST`, or one that begins so"},
	"version":   {"version", "list the nodes that run a layer of this `VERSION`"},
	"health":    {"health", "list the nodes whose health is this `STATE`: ok, degraded, broken, quarantined"},
	"sync":      {"sync", "list the nodes whose sync is this `STATE`, as in refused or refused:expired"},
	"service":   {"service", "list the nodes that report the service `NAME`"},
	"commit":    {"commit", "with --service: list those that report this `COMMIT`"},
	"sort": {"sort", "list the nodes sorted by `WHAT`: condition (the worst first, as without it), name, " +
		"generation, layer, reported; -name begins at the other end"},
}

// fleetStatus is the output of fleet status -o json: the fleet, or some nodes, or one.
type fleetStatus struct {
	Summary *query.Summary `json:"summary,omitempty"`
	Nodes   []view.Line    `json:"nodes,omitzero"` // of a list, also an empty one
	Note    string         `json:"note,omitempty"` // which word no node at all meets, though one could
	Node    *query.Node    `json:"node,omitempty"`
}

func (a *app) summaryStatus(ctx context.Context, of shown) error {
	s, err := of.Summary(ctx)
	if err != nil {
		return err
	}
	trouble := s.Trouble > 0 || s.IndexTrouble+s.DatabaseTrouble+s.SiteTrouble+s.InboxTrouble != ""
	return cmp.Or(a.show(fleetStatus{Summary: &s}, func() { s.Write(a.out) }), drift(trouble))
}

func (a *app) listStatus(ctx context.Context, of shown, q url.Values, limit int) error {
	l, err := of.Nodes(ctx, q)
	if err != nil {
		return err
	}
	err = a.show(fleetStatus{Nodes: append([]view.Line{}, l.Nodes...), Note: l.Note}, func() { l.Write(a.out, limit) })
	switch {
	case l.Note != "":
		a.say("%s", l.Note)
	case len(l.Nodes) == 0:
		a.say("no node matches")
	}
	return cmp.Or(err, drift(slices.ContainsFunc(l.Nodes, func(l view.Line) bool { return view.KindOf(l.Condition).Trouble })))
}

// usualLimit is how many nodes people are shown at a time.
const usualLimit = 1000

// nodeStatus shows all that is known of a node.
func (a *app) nodeStatus(ctx context.Context, of shown, name string) error {
	n, err := of.Node(ctx, name)
	if err != nil {
		return err
	}
	return cmp.Or(a.show(fleetStatus{Node: &n}, func() { n.Write(a.out) }), drift(view.KindOf(n.Condition).Trouble))
}

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
	case x.key != "" && !sign.IsID(x.key):
		return cli.Usage("'caisson-agent report' on the new machine prints it", "--report-key %q is not the id of a key", x.key)
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
		if takes { // before the files: a service that refuses leaves them as they are
			if err := x.at.Post(ctx, "/v1/nodes/"+url.PathEscape(node)+"/accept", x.key); err != nil {
				return err
			}
		}
		if err := change.Save(); err != nil {
			if takes {
				err = cli.WithHint(fmt.Errorf("the key is accepted, the files are not all written: %w", err), "run this again")
			}
			return err
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
	return v.names().Commands(cmp.Or(s.Registry(), "REF"), &at.Client)
}

// machineOf returns the identifiers of the machine that comes.
func (a *app) machineOf(ctx context.Context, x *replacing) (m spec.Match, err error) {
	if x.machine != "" {
		id := x.machine
		if mac, err := inventory.ParseMAC(id); err == nil {
			id = mac
		}
		var list unknown.Answer
		if err := x.at.Get(ctx, "/v1/unknown", &list); err != nil {
			return m, err
		}
		found, err := list.Find(id)
		if err != nil {
			return m, err
		}
		a.say("unproven, compare it with the machine: it asked as %s", plain.Line(found.Says()))
		x.macs, x.uuids = found.MACs, found.UUIDs
	}
	return replace.MatchOf(x.macs, x.uuids)
}
