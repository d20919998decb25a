// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/relay"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/service"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/media"
	"github.com/caisson-os/caisson/media/netboot"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/pull"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site/report"
)

func (a *app) serveCommand() *cobra.Command {
	var x listening
	c := verb("serve", func(c *cobra.Command, args []string) error {
		ref, err := oci.ParseRef(args[0])
		if err != nil || !ref.IsLayout() {
			return cli.Usage("as in oci:./out", "%q is not an OCI layout", args[0])
		}
		if _, err := pull.Open(ref, pull.Options{}); err != nil {
			return cli.Usage("'caisson build' makes one with --to "+args[0]+", or 'caisson publish' for a site without a layer", "%w", err)
		}
		if err := x.check(); err != nil {
			return err
		}
		l, err := x.open("serve", "127.0.0.1:5001")
		if err != nil {
			return err
		}
		if err := a.opened(l.Addr().String(), map[string]string{"layout": ref.Layout}); err != nil {
			return err
		}
		a.say("serving %s on %s, end with Ctrl-C", ref, l.Addr())
		h, err := registry.Handler(ref.Layout)
		if err != nil {
			return err
		}
		if x.http.Log, err = unknown.Log(unknown.Name(ref.Layout), ref.String(), a.say); err != nil {
			return err
		}
		return httpserver.Serve(c.Context(), l, h, x.http)
	})
	x.flags(c.Flags(), "127.0.0.1:5000")
	x.clientFlags(c.Flags())
	return c
}

// listening are the flags of a verb that answers requests.
type listening struct {
	at   string
	http httpserver.Options
}

func (x *listening) flags(f *pflag.FlagSet, usual string) {
	f.StringVar(&x.at, "listen", usual, "address to listen on")
	f.StringVar(&x.http.CertFile, "tls-cert", "", "certificate `FILE` to serve TLS with")
	f.StringVar(&x.http.KeyFile, "tls-key", "", "private key `FILE` of the certificate, mode 0600")
	limitFlags(f, &x.http)
}

// clientFlags say who is answered.
func (x *listening) clientFlags(f *pflag.FlagSet) {
	f.StringVar(&x.http.ClientCA, "client-ca", "", "answer only clients whose certificate the authorities in `FILE` have signed")
	f.StringVar(&x.http.UsersFile, "users-file", "", "answer only clients that know a user:password line of `FILE`, mode 0600")
}

// check refuses files that cannot be served with, before anything is opened.
func (x *listening) check() error {
	if (x.http.CertFile == "") != (x.http.KeyFile == "") {
		return cli.Usage("", "TLS needs both --tls-cert and --tls-key")
	}
	return x.http.Check()
}

// open listens, for the verb that an error names; another is an address that may be free.
func (x *listening) open(verb, another string) (net.Listener, error) {
	l, err := net.Listen("tcp", x.at)
	if err != nil {
		return nil, cli.WithHint(fmt.Errorf("%s: %w", verb, err), "--listen takes another address, as in "+another)
	}
	return l, nil
}

// opened prints the address of a server, which programs wait for, and with -o json what it serves.
func (a *app) opened(address string, served map[string]string) (err error) {
	served["address"] = address
	shown := a.show(served, func() { _, err = fmt.Fprintln(a.out, address) })
	return cmp.Or(shown, err)
}

func (a *app) netbootServeCommand() *cobra.Command {
	var o netboot.Options
	c := verb("netboot serve", func(c *cobra.Command, names []string) error {
		root, err := os.OpenRoot(names[0])
		if err != nil {
			return cli.Usage("'caisson netboot' writes it, with --out "+names[0], "netboot directory: %w", err)
		}
		defer root.Close() // only read
		if _, err := root.Stat("boot.ipxe"); err != nil {
			return cli.Usage("'caisson netboot' writes it, with --out "+names[0], "%s is not a netboot directory: no boot.ipxe in it", names[0])
		}
		if err := o.Limits.Check(); err != nil {
			return cli.Usage("", "%w", err)
		}
		o.Say = a.say
		return netboot.Serve(c.Context(), root, o)
	})
	c.Flags().StringVar(&o.HTTP, "http", ":8080", "address for HTTP")
	c.Flags().StringVar(&o.TFTP, "tftp", ":69", "address for TFTP")
	c.Flags().IntVar(&o.Transfers, "transfers", netboot.UsualTransfers, "`N` transfers by TFTP at once, 4 of them to one address")
	limitFlags(c.Flags(), &o.Limits)
	return c
}

// limitFlags bound what clients may take of a server.
func limitFlags(f *pflag.FlagSet, o *httpserver.Options) {
	f.IntVar(&o.Conns, "connections", 0, fmt.Sprintf("`N` connections at once; 0 is %d, or what 'ulimit -n' leaves. At "+
		"the limit the one that waits longest for a request ends", httpserver.UsualConns))
	f.IntVar(&o.PerClient, "connections-per-address", 0, fmt.Sprintf("of these `N` from one address; 0 is %d", httpserver.UsualPerClient))
	f.DurationVar(&o.Idle, "idle", httpserver.UsualIdle, "how long a connection may wait for its next request")
}

func (a *app) unknownCommand() *cobra.Command {
	return verb("unknown", func(_ *cobra.Command, args []string) error {
		name, err := unknownList(args[0])
		if err != nil {
			return err
		}
		machines, err := unknown.Read(name)
		if err != nil {
			return err
		}
		list := unknown.Rows(machines)
		return a.show(list, func() {
			for _, s := range list {
				cli.Printf(a.out, "%s\t# from %s, last %s\n", s.Node, s.From, s.Last.UTC().Format(time.RFC3339))
			}
			a.say("%s", plain.Count(len(list), "unknown machine"))
		})
	})
}

// unknownList returns the file beside a layout in which serve lists machines, or one of a relay.
func unknownList(layout string) (string, error) {
	if info, err := os.Stat(layout); err == nil && info.Mode().IsRegular() {
		return layout, nil
	}
	ref, err := oci.ParseRef(layout)
	if err != nil || !ref.IsLayout() {
		return "", cli.Usage("'caisson serve' keeps the list beside the layout that it serves, as in oci:./out; "+
			"'caisson fleet relay --unknown FILE' in that file", "%q is not an OCI layout", layout)
	}
	_, err = (&access{}).existing(layout)
	return unknown.Name(ref.Layout), err
}

// relaying are the flags of fleet relay.
type relaying struct {
	access
	listening
	o       relay.Options
	most    int64  // GiB
	unknown string // file of the machines that found no overlay
}

func (a *app) fleetRelayCommand() *cobra.Command {
	var v relaying
	c := verb("fleet relay", func(c *cobra.Command, args []string) error { return a.relay(c.Context(), &v, args[0]) })
	f := c.Flags()
	v.access.flags(a, f)
	f.StringVar(&v.o.Dir, "dir", "", "`DIR` where content is kept; nothing else may be in it")
	f.Int64Var(&v.most, "keep", 20, "`GiB` that the directory may take; what was not asked for longest leaves first")
	f.DurationVar(&v.o.Fresh, "fresh", 30*time.Second, "how long the answer for a tag counts")
	f.StringVar(&v.unknown, "unknown", "", "`FILE` that lists machines without an overlay, for 'caisson unknown FILE'")
	v.listening.flags(f, "127.0.0.1:5001")
	v.clientFlags(f)
	requireFlags(c, "dir")
	return c
}

func (a *app) relay(ctx context.Context, v *relaying, name string) error {
	ref, err := oci.ParseRef(name)
	switch {
	case err == nil && ref.IsLayout():
		return cli.Usage("'caisson serve' serves a directory", "%q is not a registry", name)
	case v.most < 1 || v.most > 1<<30 || v.o.Fresh <= 0: // as bytes it would overflow
		return cli.Usage("", "--keep and --fresh are above 0, and --keep is at most %d", 1<<30)
	}
	if err := v.check(); err != nil {
		return err
	}
	from, err := v.access.open(name)
	if err != nil {
		return err
	}
	v.o.Most, v.o.Say, v.http.Log = v.most<<30, a.say, func(r httpserver.Request) { a.say("%s", r) }
	if v.unknown != "" {
		if v.http.Log, err = unknown.Log(v.unknown, v.unknown, a.say); err == nil {
			err = unknown.Make(v.unknown)
		}
		if err != nil {
			return err
		}
	}
	h, err := relay.Handler(ctx, from, v.o)
	if err != nil {
		return err
	}
	l, err := v.listening.open("relay", "127.0.0.1:5001")
	if err != nil {
		return err
	}
	if err := a.opened(l.Addr().String(), map[string]string{"registry": name}); err != nil {
		return err
	}
	a.say("relaying %s on %s, end with Ctrl-C", name, l.Addr())
	return httpserver.Serve(ctx, l, h, v.http)
}

const usualDB = "sqlite:fleet.db"

// serving are the flags of fleet serve.
type serving struct {
	service.Options
	listening
	from, tokens string
	reports      string // where nodes put them; "" is nowhere
	unproven     bool   // slots are given to nodes that prove nothing
	unknown      string // layout beside which the list of unknown machines lies, or its file
	cache        string // of repositories of git
	look         looking
}

func (a *app) fleetServeCommand() *cobra.Command {
	var v serving
	var advisories advisoryFlag
	c := verb("fleet serve", func(c *cobra.Command, _ []string) (err error) {
		if v.Advise, err = advisories.layers(v.look.whom.site); err != nil {
			return err
		}
		return a.serveFleet(c.Context(), &v)
	})
	f := c.Flags()
	f.StringVar(&v.from, "from", "", "`REF` that the fleet is published at")
	v.listening.flags(f, "127.0.0.1:8090")
	f.StringVar(&v.Database, "db", usualDB, "where reports are kept: sqlite:FILE or postgres://USER@HOST/NAME")
	f.StringVar(&v.reports, "reports", "", "`REF` where nodes put reports that they do not send; it is only read")
	f.StringVar(&v.tokens, "tokens", "", "`FILE` of tokens, mode 0600; 'caisson fleet token' adds one")
	f.StringArrayVar(&v.Hosts, "host", nil, "`NAME` by which browsers and nodes reach the service; others are not answered")
	f.StringVar(&v.URL, "url", "", "`URL` by which browsers and operators reach the service behind a proxy: the page's commands name it")
	f.StringToIntVar(&v.Slots.Most, "slot", nil, "`GROUP=MAX`: so many nodes at a time may hold a slot of the group")
	f.StringSliceVar(&v.Slots.Drain, "drain", nil, "nodes of this `GROUP` wait for their slot until they are drained, as "+
		"caisson-kube does with a token of role drain")
	f.BoolVar(&v.unproven, "unproven-slots", false, "give slots also to nodes that prove nothing, as Zincati's: "+
		"any of them can free another's")
	f.StringArrayVar(&v.Authorities, "tpm-authority", nil, "`FILE` (PEM) of certificates: a machine whose TPM one of "+
		"them has certified is accepted by its first quote")
	f.StringVar(&v.unknown, "unknown", "", "`LAYOUT` (oci:DIR) beside which 'caisson serve' lists unknown machines, "+
		"or a relay's file; --from when absent")
	f.StringVar(&v.cache, "cache", "", "with --site: directory for the git repositories of its services "+cacheDefault)
	f.StringVar(&v.People.Issuer, "oidc-issuer", "", "`URL` of an OpenID provider where people log in, beside tokens")
	f.StringVar(&v.People.Client, "oidc-client", "caisson", "this service's client id there")
	f.StringVar(&v.People.Secret, "oidc-secret", "", "`FILE` with the client's secret, mode 0600 (none for a public client)")
	f.StringVar(&v.People.Claim, "oidc-claim", "groups", "claim that lists a person's groups")
	f.StringArrayVar(&v.People.Groups, "oidc-group", nil, "`ROLE=GROUP`: what people of a group may do, reader or operator")
	f.DurationVar(&v.People.Session, "oidc-session", time.Hour, "how long a login lasts: so long may a person who has left go on")
	f.StringArrayVar(&v.Hooks.URLs, "webhook", nil, "`URL` that is sent what changed, signed by --webhook-secret")
	f.StringVar(&v.Hooks.Secret, "webhook-secret", "", "`FILE` with the secret that signs, mode 0600: whsec_ and at least 24 bytes in base64")
	advisories.flag(f)
	v.look.flags(a, f)
	requireFlags(c, "from")
	return c
}

func (a *app) serveFleet(ctx context.Context, v *serving) error {
	if err := v.check(); err != nil {
		return err
	}
	if err := v.look.trustsSomebody(v.from); err != nil {
		return err
	}
	o, err := v.options(a)
	if err != nil {
		return err
	}
	if v.reports != "" {
		if err := v.inbox(v.reports); err != nil {
			return err
		}
	}
	if err := v.follow(a); err != nil {
		return err
	}
	v.look.kept, v.HTTP, v.Opened = &published.Shards{}, v.http, a.opened
	v.ReadOnce = slices.Contains(v.look.whom.site, "-") // standard input
	v.Listen = func() (net.Listener, error) { return v.open("serve", "127.0.0.1:8081") }
	return v.Serve(ctx, o, v.reader(a))
}

// follow reads the site, which may change, where one is named.
func (v *serving) follow(a *app) (err error) {
	if len(v.look.whom.site) == 0 {
		return nil
	}
	var found *report.Report
	v.Site, found = service.Follow(hostFiles{}, siteNames(v.look.whom.site), content.ReadLock)
	v.Heads = service.AskGit(func() (*content.Source, error) { return a.source(v.cache) })
	v.look.whom.loaded, err = a.good(v.Site.Now(), found)
	return err
}

// reader reads what is published by the flags.
func (v *serving) reader(a *app) *service.Reader {
	return &service.Reader{Names: func() (map[string]string, error) { return v.look.whom.names(a) }, Measure: media.Measure,
		Read: func(ctx context.Context) (*published.Fleet, error) {
			f, err := v.look.read(ctx, a, v.from)
			return f, v.hinted(err)
		}}
}

// options are those that are known before it listens.
func (v *serving) options(a *app) (o server.Options, err error) {
	v.http.Knows = true
	o = server.Options{TLS: v.http.CertFile != "", Unproven: v.unproven, Registry: v.from, Names: v.names, Version: version, Say: a.say}
	if v.tokens != "" {
		if o.Tokens, err = people.OpenTokens(v.tokens); err != nil {
			return o, cli.WithHint(err, cmp.Or(cli.HintOf(err), "'caisson fleet token NAME --role operator --tokens "+v.tokens+"' makes one"))
		}
	}
	var list string
	if v.unknown != "" {
		if list, err = unknownList(v.unknown); err != nil {
			return o, err
		}
	} else if ref, err := oci.ParseRef(v.from); err == nil && ref.IsLayout() {
		list = unknown.Name(ref.Layout)
	}
	if list != "" {
		o.Unknown = func() ([]unknown.Machine, error) { return unknown.Read(list) }
	}
	return o, nil
}

// hinted adds to an error what a service that was given keys alone can do about others: it is
// told in the log and on pages, which have no hints.
func (v *serving) hinted(err error) error {
	if len(v.look.whom.keys) == 0 || refusal.Of(err) != refusal.UnknownKey {
		return err
	}
	return fmt.Errorf("%w; --trust names the only keys that this service knows: start it again with those that count "+
		"now, or with --site, by which it follows a change of keys that the root key signed", err)
}

// names are the words of commands on the service's pages: as many keys sign as must.
func (v *serving) names() query.Names {
	s := v.look.whom.loaded // nil: there is none
	if v.Site != nil {
		s = v.Site.Now()
	}
	if s == nil {
		return query.NamesOf("", nil, v.look.whom.keys)
	}
	operators := s.Trust().Operator
	return query.NamesOf(s.Dir(), v.look.whom.site, operators[:min(len(operators), max(1, s.Trust().Threshold))])
}

// storedReports are the flags of verbs that show a fleet, also without its service: what nodes
// put into a registry is read by the verb itself then.
type storedReports struct {
	at                asking
	from, reports, db string
	look              looking
	limit             int // of nodes that people are shown
}

func (x *storedReports) flags(a *app, f *pflag.FlagSet) {
	f.StringVar(&x.from, "from", "", "`REF` that the fleet is published at, instead of a service")
	f.StringVar(&x.reports, "reports", "", "`REF` where nodes put reports (that of --from when empty)")
	f.StringVar(&x.db, "db", usualDB, "where reports are kept with --from: sqlite:FILE or postgres://USER@HOST/NAME")
	f.IntVar(&x.limit, "limit", usualLimit, "list at most so many nodes, and count the rest; 0 lists all. JSON always has all")
	x.at.flags(f)
	x.look.flags(a, f)
}

// shown is who knows how a fleet is.
type shown interface {
	Summary(ctx context.Context) (query.Summary, error)
	Nodes(ctx context.Context, q url.Values) (query.List, error)
	Node(ctx context.Context, name string) (query.Node, error)
}

// fleetShown calls look with the service, or with what is read in its place.
func (a *app) fleetShown(ctx context.Context, x *storedReports, look func(shown) error) error {
	if x.from == "" {
		return look(&x.at)
	}
	if x.at.At != "" {
		return cli.Usage("$CAISSON_FLEET counts only without --from", "--at asks a service and --from none: give one of them")
	}
	v := &serving{from: x.from, look: x.look, Options: service.Options{Database: x.db}}
	if err := v.follow(a); err != nil {
		return err
	}
	if err := v.inbox(cmp.Or(x.reports, x.from)); err != nil {
		return err
	}
	return v.Look(ctx, v.reader(a), a.say, func(f *query.Fleet) error { return look(ownLook{f}) })
}

// ownLook holds what was read without a service.
type ownLook struct{ *query.Fleet }

func (l ownLook) Summary(context.Context) (query.Summary, error) { return l.Fleet.Summary(), nil }
func (l ownLook) Nodes(_ context.Context, q url.Values) (query.List, error) {
	list, err := l.Fleet.Nodes(q)
	return list, misasked(err)
}
func (l ownLook) Node(ctx context.Context, name string) (query.Node, error) {
	n, err := l.Fleet.Node(ctx, name)
	if errors.Is(err, hub.ErrNoNode) {
		err = misasked(err)
	}
	return n, err
}

// misasked is an error about what was asked for.
func misasked(err error) error {
	if err == nil {
		return nil
	}
	return cli.Usage(cli.HintOf(err), "%w", err)
}

// inbox opens where nodes put reports.
func (v *serving) inbox(ref string) error {
	r, err := v.look.reach.existing(ref)
	if err == nil {
		v.Inbox = service.Inbox(r.Source())
	}
	return err
}
