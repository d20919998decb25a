// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/commits"
	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/layerdiff"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/unknown"
	"github.com/caisson-os/caisson/fleet/webhook"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/site/plan"
	"github.com/caisson-os/caisson/spec/site/service"
)

const usualDB = "sqlite:fleet.db"

// serving are the flags of fleet serve.
type serving struct {
	listening
	from, db, tokens string
	reports          string   // where nodes put them; "" is nowhere
	authorities      []string // of TPMs, files
	hosts            []string
	url              string // by which a proxy before it is reached
	slots            slotFlags
	unknown          string // layout beside which the list of unknown machines lies, or its file
	cache            string // of repositories of git
	look             looking
	people           peopleFlags
	hooks            hookFlags
	site             *query.FollowedSite // nil: the service has none
}

// slotFlags say who may hold a slot.
type slotFlags struct {
	most     map[string]int // of each group
	drain    []string       // groups
	unproven bool
}

func (a *app) fleetServeCommand() *cobra.Command {
	var v serving
	var advisories advisoryFlag
	c := verb("fleet serve", func(c *cobra.Command, _ []string) error {
		by, err := advisories.layers(v.look.whom.site)
		if err != nil {
			return err
		}
		return a.serveFleet(c.Context(), &v, by)
	})
	f := c.Flags()
	f.StringVar(&v.from, "from", "", "`REF` that the fleet is published at")
	v.listening.flags(f, "127.0.0.1:8090")
	f.StringVar(&v.db, "db", usualDB, "where reports are kept: sqlite:FILE or postgres://USER@HOST/NAME")
	f.StringVar(&v.reports, "reports", "", "`REF` where nodes put reports that they do not send; it is only read")
	f.StringVar(&v.tokens, "tokens", "", "`FILE` of tokens, mode 0600; 'caisson fleet token' adds one")
	f.StringArrayVar(&v.hosts, "host", nil, "`NAME` by which browsers and nodes reach the service; others are not answered")
	f.StringVar(&v.url, "url", "", "`URL` by which browsers and operators reach the service behind a proxy: the page's commands name it")
	f.StringToIntVar(&v.slots.most, "slot", nil, "`GROUP=MAX`: so many nodes at a time may hold a slot of the group")
	f.StringSliceVar(&v.slots.drain, "drain", nil, "nodes of this `GROUP` wait for their slot until they are drained, as "+
		"caisson-kube does with a token of role drain")
	f.BoolVar(&v.slots.unproven, "unproven-slots", false, "give slots also to nodes that prove nothing, as Zincati's: "+
		"any of them can free another's")
	f.StringArrayVar(&v.authorities, "tpm-authority", nil, "`FILE` (PEM) of certificates: a machine whose TPM one of "+
		"them has certified is accepted by its first quote")
	f.StringVar(&v.unknown, "unknown", "", "`LAYOUT` (oci:DIR) beside which 'caisson serve' lists unknown machines, or a relay's file; --from when absent")
	f.StringVar(&v.cache, "cache", "", "with --site: directory for the git repositories of its services "+cacheDefault)
	v.people.flags(f)
	v.hooks.flags(f)
	advisories.flag(f)
	v.look.flags(a, f)
	requireFlags(c, "from")
	return c
}

// serveFleet says beside earlier generations what by says of their layers.
func (a *app) serveFleet(ctx context.Context, v *serving, by plan.Advise) (err error) {
	if err := v.check(); err != nil {
		return err
	}
	if err := v.look.trustsSomebody(v.from); err != nil {
		return err
	}
	drains, err := v.drains()
	if err != nil {
		return err
	}
	o, err := v.options(a)
	if err != nil {
		return err
	}
	v.look.kept = &publish.Shards{}
	l, err := v.listen(&o)
	if err != nil {
		return err
	}
	defer l.Close() // the server has closed it
	if o.People, err = v.people.open(&o, httpserver.Address(l.Addr().(*net.TCPAddr), v.http.CertFile != "", v.hosts)); err != nil {
		return err
	}
	authorities, err := readAuthorities(v.authorities)
	if err != nil {
		return err
	}
	told, err := v.hooks.open(a.say)
	if err != nil {
		return err
	}
	reads := &reading{sent: &commits.Sent{}}
	var box *report.Inbox
	if v.reports != "" {
		if box, err = v.look.inbox(v.reports); err != nil {
			return err
		}
		o.Inbox = box
	}
	var asked *commits.Heads
	o.Layers, o.Sent = layerdiff.New(reads.layer), reads.sent
	if len(v.look.whom.site) > 0 {
		if v.site, err = a.serveSite(v.look.whom.site); err != nil {
			return err
		}
		v.look.whom.loaded = v.site.Now()
		asked = a.askGit(v.cache)
		o.Site, o.Heads = v.site, asked
	}
	db, err := store.Open(ctx, v.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if o.Hub, err = hub.Open(ctx, hub.Options{Store: db, Index: a.fleetIndex(v, reads), Groups: v.slots.most, Drains: drains,
		Hears: true, Say: a.say}); err != nil {
		return err
	}
	o.Quotes = &attest.Desk{Nodes: o.Hub, Known: reads.known, Now: time.Now, Say: a.say, Authorities: authorities}
	go o.Quotes.Run(ctx)
	past := history.NewPast(ctx, reads.fleet.Load, func() (map[string]string, error) { return v.look.whom.names(a) })
	past.By, o.Past = by, past
	h, err := server.New(ctx, o)
	if err != nil {
		return err
	}
	address := cmp.Or(o.URL, httpserver.Address(l.Addr().(*net.TCPAddr), v.http.CertFile != "", v.hosts))
	if err := a.opened(address, map[string]string{"listen": l.Addr().String(), "database": db.Place()}); err != nil {
		return err
	}
	if v.site != nil {
		if !slices.Contains(v.look.whom.site, "-") { // standard input is read once
			go v.site.Keep(ctx, siteEvery, a.say)
		}
		go asked.Keep(ctx, siteEvery, func() []service.Service { return v.site.Now().Services().List })
	}
	if len(told) > 0 {
		go webhook.Watch(ctx, hooked{o.Hub}, told, time.Tick(hookEvery), a.say)
	}
	if box != nil {
		box.Take = o.Hub.Stored
		go box.Keep(ctx, writesFor(o.Hub), a.say)
	}
	return serveHub(ctx, stop, o.Hub, func(ctx context.Context) error { return httpserver.Serve(ctx, l, h, v.http) })
}

// listen opens the place that the service listens at, and says in its options by which names it is reached.
func (v *serving) listen(o *server.Options) (net.Listener, error) {
	l, err := v.open("serve", "127.0.0.1:8081")
	if err != nil {
		return nil, err
	}
	if o.Hosts = httpserver.Names(l.Addr().(*net.TCPAddr), v.hosts); o.Tokens == nil && !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		err = cli.Usage("give --tokens, or --listen 127.0.0.1:8090", "without tokens the service is for a loopback only")
	} else {
		err = reachedBy(v.url, o, &v.http)
	}
	if err != nil {
		_ = l.Close() // nobody has been answered
		return nil, err
	}
	return l, nil
}

// serveSite reads a site that can be followed.
func (a *app) serveSite(names []string) (*query.FollowedSite, error) {
	s, found := query.Follow(hostFiles{}, siteNames(names), content.ReadLock)
	_, err := a.good(s.Now(), found)
	return s, err
}

// How often the fleet's service looks whether its site has changed, and asks a server of git about one service.
const (
	siteEvery = 5 * time.Second
	gitEvery  = 5 * time.Minute
)

// askGit returns who asks git what the services of a site follow now, as 'services diff'
// does.
func (a *app) askGit(cache string) *commits.Heads {
	return &commits.Heads{Every: gitEvery, Wait: content.Glance.Time, Ask: func(ctx context.Context, s *service.Service) (string, error) {
		at, err := cacheDir(cache)
		if err != nil {
			return "", err
		}
		head, err := (&content.Source{Cache: at, Limits: content.Glance, Now: now(), Say: a.say}).Head(ctx, s)
		return head.ID, err
	}}
}

// options are those that are known before it listens.
func (v *serving) options(a *app) (o server.Options, err error) {
	v.http.Knows = true
	o = server.Options{TLS: v.http.CertFile != "", Unproven: v.slots.unproven, Registry: v.from, Names: v.names, Version: version, Say: a.say}
	if v.tokens != "" {
		if o.Tokens, err = server.OpenTokens(v.tokens); err != nil {
			return o, cli.WithHint(err, "'caisson fleet token NAME --role operator --tokens "+v.tokens+"' makes one")
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

// serveHub serves while a hub works; where either ends, so does the other.
func serveHub(ctx context.Context, stop func(), h *hub.Hub, serve func(context.Context) error) error {
	working := make(chan error, 1)
	go func() {
		err := h.Run(ctx)
		stop() // its database is one that somebody has to put right
		working <- err
	}()
	err := serve(ctx)
	stop()
	return errors.Join(err, <-working)
}

// drains returns the groups of slots whose nodes are drained first, and refuses groups that cannot be.
func (v *serving) drains() (map[string]bool, error) {
	for _, name := range slices.Sorted(maps.Keys(v.slots.most)) {
		if v.slots.most[name] < 1 || v.slots.most[name] > 1_000_000 || name == "" {
			return nil, cli.Usage("as in --slot default=1", "group %q has %d slots", name, v.slots.most[name])
		}
	}
	drains := map[string]bool{}
	for _, name := range v.slots.drain {
		if v.slots.most[name] == 0 {
			return nil, cli.Usage("as in --slot "+name+"=1 --drain "+name, "--drain %s: there is no such group of slots", name)
		}
		drains[name] = true
	}
	return drains, nil
}

// reachedBy takes the URL by which a proxy is reached that stands before the service.
func reachedBy(text string, o *server.Options, h *httpserver.Options) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	const as = "as in --url https://fleet.example.org"
	switch {
	case err != nil:
		return cli.Usage(as, "--url: %w", err)
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", strings.TrimRight(u.Path, "/") != "", u.User != nil,
		u.RawQuery != "", u.Fragment != "":
		return cli.Usage(as, "--url %q is not https:// or http:// with a name and no more", text)
	case strings.Trim(strings.ToLower(u.Host), "abcdefghijklmnopqrstuvwxyz0123456789.-:[]") != "":
		return cli.Usage(as, "--url %q has a name that browsers do not send", text) // and a page shows it within commands for a shell
	case o.Tokens == nil && !(oci.Ref{Host: u.Host}).Loopback():
		return cli.Usage("give --tokens", "without tokens the service is for a loopback only, and --url says that others reach it")
	}
	o.URL, o.TLS = u.Scheme+"://"+u.Host, u.Scheme == "https"
	o.Hosts = append(o.Hosts, u.Hostname())
	if h.PerClient == 0 {
		h.PerClient = h.Most() // all come from the proxy's address
	}
	return nil
}
