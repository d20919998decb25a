// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/git"
	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/mirror"
	"github.com/caisson-os/caisson/fleet/prune"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/spec/site"
)

// holdVerb is a verb that changes what holds nodes of a published fleet.
type holdVerb struct {
	begins bool // a hold, which has a reason and maybe an end
	sealed bool // it brings secrets, and takes heed of the accepted recipients
	flags  func(*pflag.FlagSet)
	check  func() error
	run    func(context.Context, *publish.Publisher, hold.Order) (*publish.Result, error)
}

func (a *app) holdCommand(name string, v holdVerb) *cobra.Command {
	var which chosen
	var why changer
	var until string
	var x changing
	c := verb(name, func(c *cobra.Command, args []string) error {
		if err := notASite(args[0]); err != nil { // before what else is missing
			return err
		}
		if v.check != nil {
			if err := v.check(); err != nil {
				return err
			}
		}
		order := hold.Order{By: why.by()}
		if v.begins && order.Reason == "" {
			return errNoReason
		}
		var err error
		if order.Until, err = hold.ParseUntil(until, now()); err != nil {
			return err
		}
		if order.Nodes, order.All, err = which.nodes(a, x.whom.site); err != nil {
			return err
		}
		return x.change(a, args[0], func(p *publish.Publisher) (_ *publish.Result, err error) {
			if v.sealed {
				if order.Recipients, err = x.whom.recipients(a); err != nil {
					return nil, err
				}
			}
			return v.run(c.Context(), p, order)
		})
	})
	f := c.Flags()
	which.flags(f)
	if v.flags != nil {
		v.flags(f)
	}
	if why.flags(f); v.begins {
		f.StringVar(&until, "until", "", "end it at `TIME`: 7d, 12h, 2026-11-30 or 2026-11-30T18:00:00Z")
	}
	x.flags(a, f)
	return c
}

// errNoReason is for a verb that others have to understand later.
var errNoReason = cli.Usage("'caisson history' shows it to others", "--reason is missing")

// changing are the flags of a verb that changes a published fleet.
type changing struct {
	looking
	who signers
}

func (x *changing) flags(a *app, f *pflag.FlagSet) {
	x.who.flags(f)
	x.whom.flags(f)
	x.known.flags(f)
	x.reach.flags(a, f)
}

// publisher opens a published fleet to change it.
func (x *changing) publisher(a *app, ref string) (*publish.Publisher, error) {
	if err := notASite(ref); err != nil {
		return nil, err
	}
	public, err := x.whom.operators(a)
	if err != nil {
		return nil, err
	}
	by, err := x.who.load(a, public)
	if err != nil {
		return nil, err
	}
	if by == nil && x.whom.nobody() {
		return nil, trustsNobody(ref)
	}
	p, err := x.looking.publisher(a, ref, by)
	if err == nil {
		p.Dry = x.who.dry
	}
	return p, err
}

// change does something to a published fleet, and prints what came of it.
func (x *changing) change(a *app, ref string, act func(*publish.Publisher) (*publish.Result, error)) error {
	p, err := x.publisher(a, ref)
	if err != nil {
		return err
	}
	result, err := act(p)
	return a.published(ref, result, err)
}

// chosen says which nodes of a fleet are meant.
type chosen struct {
	names, labels []string
	set           string
	all           bool
}

func (x *chosen) flags(f *pflag.FlagSet) {
	f.StringArrayVar(&x.names, "node", nil, "this node; several are possible")
	f.StringArrayVar(&x.labels, "label", nil, "nodes of --site with the label `KEY=VALUE`; several must all hold")
	f.StringVar(&x.set, "set", "", "nodes of the NodeSet `NAME` of --site")
	f.BoolVar(&x.all, "all", false, "all nodes")
}

// nodes returns the names that are meant, or that all are.
func (x *chosen) nodes(a *app, files []string) (names []string, all bool, err error) {
	byLabel := len(x.labels) > 0 || x.set != ""
	switch {
	case byLabel && (x.all || len(x.names) > 0), x.all && len(x.names) > 0:
		return nil, false, cli.Usage("", "give either --node, or --label and --set, or --all")
	case !byLabel && !x.all && len(x.names) == 0:
		return nil, false, cli.Usage("", "no nodes are named: give --node, --label, --set or --all")
	case !byLabel:
		return x.names, x.all, nil
	case len(files) == 0:
		return nil, false, cli.Usage("add --site: labels and sets are in the site", "--label and --set need --site")
	}
	s, err := a.loadNamed(files...)
	if err != nil {
		return nil, false, err
	}
	names, err = s.Groups().Select(x.labels, x.set)
	return names, false, err
}

// some is flags for a verb that has a site, and is for all nodes where none are chosen.
func (x *chosen) some(f *pflag.FlagSet, verb string) {
	f.StringArrayVar(&x.names, "node", nil, verb+" this node only; several are possible")
	f.StringArrayVar(&x.labels, "label", nil, verb+" nodes with the label `KEY=VALUE` only; several must all hold")
	f.StringVar(&x.set, "set", "", verb+" nodes of the NodeSet `NAME` only")
}

// of returns which of a site's nodes are meant, nil when none are chosen.
func (x *chosen) of(s *site.Site) ([]string, error) {
	names := slices.Clone(x.names)
	if len(x.labels) > 0 || x.set != "" {
		more, err := s.Groups().Select(x.labels, x.set)
		if err != nil {
			return nil, err
		}
		names = append(names, more...)
	}
	for _, name := range x.names {
		if why := s.Fleet().WhyLeftOut(name); why != "" {
			return nil, cli.Usage("it keeps what is published for it until that is settled", "the node %s is left out: %s", name, why)
		}
		if _, err := s.Fleet().Node(name); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// changer says who changes a fleet, and why.
type changer struct{ author, reason string }

func (x *changer) flags(f *pflag.FlagSet) {
	f.StringVar(&x.reason, "reason", "", "why, for those who look at the history")
	f.StringVar(&x.author, "author", "", "who, for those who look at the history (the user and this machine when empty)")
}

func (x *changer) by() publish.By {
	return publish.By{Author: cmp.Or(x.author, self()), Reason: x.reason}
}

// of is by, with the commit of the site that is published. Where git does not tell, that is said: it is a note.
func (x *changer) of(ctx context.Context, a *app, s *site.Site) publish.By {
	by := x.by()
	var err error
	if by.Commit, err = git.Head(ctx, s.Dir()); err != nil {
		a.say("the history has no commit of the site: %v", err)
	}
	return by
}

// self is USER@HOST, as far as it can be told. It proves nothing: signatures do.
func self() string {
	name := os.Getenv("USER")
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	host, err := os.Hostname()
	if err != nil {
		return name
	}
	return name + "@" + host
}

func (a *app) holdCommands() []*cobra.Command {
	return []*cobra.Command{
		a.holdCommand("freeze", holdVerb{begins: true, run: hold.Freeze}),
		a.pinCommand(),
		a.rollbackCommand(),
		a.holdCommand("forward", holdVerb{run: hold.Forward}),
		a.holdCommand("pause", holdVerb{begins: true, run: hold.Pause}),
		a.holdCommand("resume", holdVerb{run: hold.Resume}),
	}
}

func (a *app) pinCommand() *cobra.Command {
	var layer string
	return a.holdCommand("pin", holdVerb{
		begins: true,
		flags: func(f *pflag.FlagSet) {
			f.StringVar(&layer, "layer", "", "the `DIGEST` of the layer's index or manifest, or a tag")
		},
		check: func() error {
			if layer == "" {
				return cli.Usage("caisson prune REF --dry-run lists the layers", "no layer to pin: give --layer")
			}
			return nil
		},
		run: func(ctx context.Context, p *publish.Publisher, o hold.Order) (*publish.Result, error) {
			return hold.Pin(ctx, p, o, layer)
		},
	})
}

func (a *app) rollbackCommand() *cobra.Command {
	var to string
	var oldSecrets bool
	return a.holdCommand("rollback", holdVerb{
		begins: true,
		sealed: true,
		flags: func(f *pflag.FlagSet) {
			f.BoolVar(&oldSecrets, "old-secrets", false, "also where secrets become older, or were sealed to a recipient that a node had before")
			f.StringVar(&to, "to", "", "the generation `GEN`, as 'caisson history' lists them")
		},
		run: func(ctx context.Context, p *publish.Publisher, o hold.Order) (*publish.Result, error) {
			o.OldSecrets = oldSecrets
			return hold.Rollback(ctx, p, o, to)
		},
	})
}

func (a *app) refreshCommand() *cobra.Command {
	var lists publish.Lists
	var reject []string
	var x changing
	c := verb("refresh", func(c *cobra.Command, args []string) error {
		for _, one := range reject {
			if strings.Contains(one, ":") {
				lists.Reject = append(lists.Reject, one)
			} else {
				lists.Given = append(lists.Given, one)
			}
		}
		return x.change(a, args[0], func(p *publish.Publisher) (*publish.Result, error) { return p.Refresh(c.Context(), lists) })
	})
	f := c.Flags()
	f.StringArrayVar(&reject, "reject", nil, "put the `DIGEST` of a layer's manifest or an overlay on the reject list, "+
		"or every overlay that a generation gave to nodes, as in 0-16")
	f.BoolVar(&lists.Unseen, "yes", false, "reject also a digest that no node has and the registry has not")
	f.StringArrayVar(&lists.Allow, "allow", nil, "take the `DIGEST` off the reject list")
	x.flags(a, f)
	return c
}

func (a *app) retireCommand() *cobra.Command {
	var names []string
	var why changer
	var x changing
	c := verb("retire", func(c *cobra.Command, args []string) error {
		if len(names) == 0 {
			return cli.Usage("", "no node is named: give --node")
		}
		if len(x.whom.site) > 0 {
			s, err := a.loadNamed(x.whom.site...)
			if err != nil {
				return err
			}
			for _, name := range names {
				if s.Fleet().Has(name) {
					return cli.Usage("take it out first: the next publish would make it again", "node %q is in the site", name)
				}
			}
		}
		return x.change(a, args[0], func(p *publish.Publisher) (*publish.Result, error) { return p.Retire(c.Context(), names, why.by()) })
	})
	f := c.Flags()
	f.StringArrayVar(&names, "node", nil, "retire this node; several are possible")
	why.flags(f)
	x.flags(a, f)
	return c
}

func (a *app) pruneCommand() *cobra.Command {
	var look looking
	var keep prune.Keep
	var dry bool
	c := verb("prune", func(c *cobra.Command, args []string) error {
		if keep.Versions < 1 || keep.Generations < 1 {
			return cli.Usage("at least 1 of each", "--keep %d --generations %d", keep.Versions, keep.Generations)
		}
		p, err := look.publisher(a, args[0], nil)
		if err != nil {
			return err
		}
		out, err := prune.Run(c.Context(), &p.Reader, p.Alone, keep, dry)
		if err := a.printTold(out, err); err != nil || len(out.Stays) == 0 {
			return err
		}
		return cli.WithHint(fmt.Errorf("the registry did not remove %d of what was to go", len(out.Stays)),
			"let it delete manifests and change tags, or remove them with its own means; what stays takes space, and no node needs it")
	})
	c.Flags().IntVar(&keep.Versions, "keep", 3, "number of versions of layers to keep, by when they were released")
	c.Flags().IntVar(&keep.Generations, "generations", 10, "number of generations of the fleet to keep")
	c.Flags().BoolVarP(&dry, "dry-run", "n", false, "only print what would be removed")
	look.flags(a, c.Flags())
	look.known.waiting(c.Flags())
	return c
}

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
	p, err := a.publisher(from, nil, &f.whom, f.known)
	if err != nil {
		return err
	}
	m := &mirror.Mirror{Say: a.say, Dry: f.dry, From: &p.Reader, To: &published.Reader{Registry: to, Now: now(), Say: a.say}}
	if m.Policy = m.From.Trust; m.Policy == nil {
		a.say("warning: nothing is verified: whoever can push to %s chooses what is copied", from.Ref())
	}
	var result *mirror.Result
	if one {
		result, err = m.Layer(ctx, reference)
	} else {
		result, err = m.Fleet(ctx)
	}
	return a.printTold(result, err)
}
