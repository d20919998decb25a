// SPDX-License-Identifier: Apache-2.0

// Package service puts the service of one fleet together: what is published and verified, a database
// of reports, the site, and whom it tells, behind the pages of package server; [Sent], [Heads] and [Layers]
// remember what is slow to ask for. Without a network, it reads the reports that nodes put into a
// registry, once.
//
// What an operator named is checked here, each in the words of its flag. It opens no key and no
// registry: who starts it hands over how what is published is read. Only cmd/caisson imports it.
package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/attest"
	"github.com/caisson-os/caisson/fleet/history"
	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/webhook"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/httpserver"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/site/plan"
	"github.com/caisson-os/caisson/spec/site/service"
)

// How often the service looks whether its site has changed, and asks a server of git about one service.
const (
	siteEvery = 5 * time.Second
	gitEvery  = 5 * time.Minute
)

// Options say what is served, to whom.
type Options struct {
	Database    string
	URL         string   // by which a proxy before it is reached
	Hosts       []string // names by which it is reached
	Slots       Slots
	Authorities []string // files with certificates of TPMs' makers
	People      People
	Hooks       Hooks
	HTTP        httpserver.Options
	Inbox       *report.Inbox // where nodes put reports; nil is nowhere
	Site        *FollowedSite // nil: there is none
	Heads       *Heads        // of the services of the site

	Listen   func() (net.Listener, error)
	Opened   func(address string, served map[string]string) error // is told when it answers
	Advise   plan.Advise                                          // of layers of earlier generations; nil for no word
	ReadOnce bool                                                 // the site is not read again
}

// Serve serves a fleet until the context ends. s has what pages need; the rest of it is filled in.
func (o *Options) Serve(ctx context.Context, s server.Options, r *Reader) (err error) {
	drains, err := o.Slots.drains()
	if err != nil {
		return err
	}
	l, err := o.listen(&s)
	if err != nil {
		return err
	}
	defer l.Close() // the server has closed it
	own := httpserver.Address(l.Addr().(*net.TCPAddr), o.HTTP.CertFile != "", o.Hosts)
	if s.People, err = o.People.open(&s, o.named(l, own)); err != nil {
		return err
	}
	if s.People != nil {
		own = o.named(l, own) // who begins a login by another name comes back without it
	}
	authorities, err := readAuthorities(o.Authorities)
	if err != nil {
		return err
	}
	told, err := o.Hooks.open(s.Say)
	if err != nil {
		return err
	}
	r.sent = &Sent{}
	s.Layers, s.Sent = NewLayers(r.Layer), r.sent
	if o.Inbox != nil {
		s.Inbox = o.Inbox
	}
	if o.Site != nil {
		s.Site, s.Heads = o.Site, o.Heads
	}
	db, err := store.Open(ctx, o.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if s.Hub, err = hub.Open(ctx, hub.Options{Store: db, Index: r.Index, Groups: o.Slots.Most, Drains: drains,
		Hears: true, Say: s.Say}); err != nil {
		return err
	}
	s.Quotes = &attest.Desk{Nodes: s.Hub, Known: r.Known, Now: time.Now, Say: s.Say, Authorities: authorities}
	go s.Quotes.Run(ctx)
	past := history.NewPast(ctx, r.Published, r.Names)
	past.By, s.Past = o.Advise, past
	h, err := server.New(ctx, s)
	if err != nil {
		return err
	}
	if err := o.Opened(cmp.Or(s.URL, own), map[string]string{"listen": l.Addr().String(), "database": db.Place()}); err != nil {
		return err
	}
	if o.Site != nil {
		if !o.ReadOnce {
			go o.Site.Keep(ctx, siteEvery, s.Say)
		}
		go o.Heads.Keep(ctx, siteEvery, func() []service.Service { return o.Site.Now().Services().List })
	}
	if len(told) > 0 {
		go webhook.Watch(ctx, hooked{s.Hub}, told, time.Tick(hookEvery), s.Say)
	}
	if o.Inbox != nil {
		o.Inbox.Take = s.Hub.Stored
		go o.Inbox.Keep(ctx, writesFor(s.Hub), s.Say)
	}
	return serveHub(ctx, stop, s.Hub, func(ctx context.Context) error { return httpserver.Serve(ctx, l, h, o.HTTP) })
}

// named returns the address by which browsers come, who may reach a loopback by another name.
func (o *Options) named(l net.Listener, own string) string {
	if len(o.Hosts) == 0 {
		return own
	}
	return httpserver.Address(&net.TCPAddr{IP: net.IPv4zero, Port: l.Addr().(*net.TCPAddr).Port}, o.HTTP.CertFile != "", o.Hosts)
}

// listen opens the place that the service listens at, and says in its options by which names it is reached.
func (o *Options) listen(s *server.Options) (net.Listener, error) {
	l, err := o.Listen()
	if err != nil {
		return nil, err
	}
	if s.Hosts = httpserver.Names(l.Addr().(*net.TCPAddr), o.Hosts); s.Tokens == nil && !l.Addr().(*net.TCPAddr).IP.IsLoopback() {
		err = cli.Usage("give --tokens, or --listen 127.0.0.1:8090", "without tokens the service is for a loopback only")
	} else {
		err = o.reachedBy(s)
	}
	if err != nil {
		_ = l.Close() // nobody has been answered
		return nil, err
	}
	return l, nil
}

// reachedBy takes the URL by which a proxy is reached that stands before the service.
func (o *Options) reachedBy(s *server.Options) error {
	if o.URL == "" {
		return nil
	}
	u, err := url.Parse(o.URL)
	const as = "as in --url https://fleet.example.org"
	switch {
	case err != nil:
		return cli.Usage(as, "--url: %w", err)
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", strings.TrimRight(u.Path, "/") != "", u.User != nil,
		u.RawQuery != "", u.Fragment != "":
		return cli.Usage(as, "--url %q is not https:// or http:// with a name and no more", o.URL)
	case strings.Trim(strings.ToLower(u.Host), "abcdefghijklmnopqrstuvwxyz0123456789.-:[]") != "":
		return cli.Usage(as, "--url %q has a name that browsers do not send", o.URL) // and a page shows it within commands for a shell
	case s.Tokens == nil && !(oci.Ref{Host: u.Host}).Loopback():
		return cli.Usage("give --tokens", "without tokens the service is for a loopback only, and --url says that others reach it")
	}
	s.URL, s.TLS = u.Scheme+"://"+u.Host, u.Scheme == "https"
	s.Hosts = append(s.Hosts, u.Hostname())
	if o.HTTP.PerClient == 0 {
		o.HTTP.PerClient = o.HTTP.Most() // all come from the proxy's address
	}
	return nil
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

// Inbox returns where nodes put reports that they do not send.
func Inbox(from oci.Source) *report.Inbox {
	about := func(err error) bool {
		var refused *hub.RefusedError
		return errors.As(err, &refused)
	}
	return &report.Inbox{From: from, Refuses: about}
}

// writesFor returns the nodes whose reports a hub keeps, and whether it is the instance that writes.
func writesFor(h *hub.Hub) func() (nodes []string, reads bool) {
	return func() (names []string, _ bool) {
		for _, n := range h.Nodes() {
			if n.Published != nil {
				names = append(names, n.Name)
			}
		}
		return names, h.Writes()
	}
}

// Reader reads what is published, again each time, and remembers what it read last.
type Reader struct {
	Read    func(context.Context) (*published.Fleet, error)   // verified by the keys that are trusted
	Names   func() (map[string]string, error)                 // of operators' keys, by their ids
	Measure func(loader []byte) ([32]byte, [][32]byte, error) // what its file leaves in a TPM
	sent    *Sent                                             // nil: what overlays bring is not read

	fleet   atomic.Pointer[published.Fleet]
	rows    index.Rows
	root    string                  // of these rows
	loaders map[string]attest.Known // by digest, what each leaves in a TPM; one question at a time
}

// Published returns the fleet as it was read last, nil before the first time.
func (r *Reader) Published() *published.Fleet { return r.fleet.Load() }

var errUnread = errors.New("what is published could not be read yet")

// Known returns what a node may have booted: what it was given, by the loaders that fleet:current
// names for disks.
func (r *Reader) Known(ctx context.Context, node string) (known attest.Known, err error) {
	f := r.fleet.Load()
	if f == nil {
		return known, errUnread
	}
	known.Node = node
	now := map[string]attest.Known{}
	for _, l := range f.Loaders() {
		one, read := r.loaders[l.Image.Digest]
		if !read {
			image, err := f.Loader(ctx, l)
			if err != nil {
				return known, fmt.Errorf("loader %d: %w", l.Number, err)
			}
			stub, programs, err := r.Measure(image)
			if err != nil {
				return known, fmt.Errorf("loader %d: %w", l.Number, err)
			}
			one.AddLoader(fmt.Sprintf("loader %d", l.Number), stub, programs...)
		}
		now[l.Image.Digest] = one
		known.AddLoaders(one)
	}
	r.loaders = now
	known.Roots, err = attest.Given(ctx, f, node)
	return known, err
}

// Layer returns a layer, verified as what is published is.
func (r *Reader) Layer(ctx context.Context, digest string) (release.Layer, error) {
	f := r.fleet.Load()
	if f == nil {
		return release.Layer{}, errUnread
	}
	return f.Layer(ctx, digest)
}

// Index is a [hub.Index]: what is published, and some of what nodes were sent of services and windows.
func (r *Reader) Index(ctx context.Context, known string) (hub.Published, error) {
	f, err := r.Read(ctx)
	if err != nil {
		return hub.Published{}, err
	}
	r.fleet.Store(f)
	p := hub.Published{Fleet: f.Policy().Fleet, Floor: f.Floor(), Root: f.Root()}
	if p.Unfinished, err = f.Unfinished(ctx); err != nil {
		return p, err
	}
	if p.Root != r.root {
		if r.rows, err = f.Nodes(ctx); err != nil {
			return p, err
		}
		r.root = p.Root
	}
	most := atOnce
	if p.Root != known {
		most = atFirst
	}
	if r.sent != nil {
		r.sent.Read(ctx, f, r.rows, plain.Names(maps.Keys(r.rows)), most)
	}
	if p.Root == known {
		return p, nil
	}
	names, err := r.Names()
	if err != nil {
		return p, err
	}
	for _, id := range f.SignedBy() {
		p.SignedBy = append(p.SignedBy, cmp.Or(names[id], id))
	}
	p.Rows = r.rows
	p.Rollouts, err = rollout.States(ctx, f)
	return p, err
}

// readAll bounds the time that reading all reports may take.
const readAll = 15 * time.Minute

// Look reads what is published and the reports in the inbox, once, and calls look while the database
// is open.
func (o *Options) Look(ctx context.Context, r *Reader, say func(string, ...any), look func(*query.Fleet) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, readAll)
	defer cancel()
	published, err := r.Index(ctx, "")
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, o.Database)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	fleet := &query.Fleet{}
	if o.Site != nil {
		fleet.Site = o.Site
	}
	as := func(context.Context, string) (hub.Published, error) { return published, nil }
	if fleet.Hub, err = hub.Open(ctx, hub.Options{Store: db, Index: as, Say: say}); err != nil {
		return err
	}
	if !fleet.Hub.Writes() {
		say("another program writes to %s: this shows what that wrote", db.Place())
		return look(fleet)
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer stop() // nobody takes reports any more
		ended <- fleet.Hub.Run(working)
	}()
	names := slices.Sorted(maps.Keys(published.Rows))
	o.Inbox.Take = fleet.Hub.Stored
	refused, err := o.Inbox.Read(working, names, len(names))
	stop()
	report.SayRefused(refused, say)
	if err := cmp.Or(<-ended, err); err != nil { // what ended the one cuts the other
		return err
	}
	return look(fleet)
}
