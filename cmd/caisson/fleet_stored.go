// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/spf13/pflag"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/internal/cli"
)

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
	return a.readStored(ctx, x, func(f *query.Fleet) error { return look(ownLook{f}) })
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

// readAll bounds the time that reading all reports may take.
const readAll = 15 * time.Minute

// readStored reads what is published and the reports in a registry, once, and calls look
// while the database is open.
func (a *app) readStored(ctx context.Context, x *storedReports, look func(*query.Fleet) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, readAll)
	defer cancel()
	v := &serving{from: x.from, look: x.look}
	fleet := &query.Fleet{}
	if len(x.look.whom.site) > 0 {
		if v.site, err = a.serveSite(v.look.whom.site); err != nil {
			return err
		}
		v.look.whom.loaded = v.site.Now()
		fleet.Site = v.site
	}
	box, err := v.look.inbox(cmp.Or(x.reports, x.from))
	if err != nil {
		return err
	}
	published, err := a.fleetIndex(v, &reading{})(ctx, "")
	if err != nil {
		return err
	}
	db, err := store.Open(ctx, x.db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	as := func(context.Context, string) (hub.Published, error) { return published, nil }
	if fleet.Hub, err = hub.Open(ctx, hub.Options{Store: db, Index: as, Say: a.say}); err != nil {
		return err
	}
	if !fleet.Hub.Writes() {
		a.say("another program writes to %s: this shows what that wrote", db.Place())
		return look(fleet)
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer stop() // nobody takes reports any more
		ended <- fleet.Hub.Run(working)
	}()
	names := slices.Sorted(maps.Keys(published.Rows))
	box.Take = fleet.Hub.Stored
	refused, err := box.Read(working, names, len(names))
	stop()
	report.SayRefused(refused, a.say)
	if err := cmp.Or(<-ended, err); err != nil { // what ended the one cuts the other
		return err
	}
	return look(fleet)
}

// inbox opens where nodes put reports.
func (l *looking) inbox(ref string) (*report.Inbox, error) {
	r, err := l.reach.existing(ref)
	if err != nil {
		return nil, err
	}
	about := func(err error) bool {
		var refused *hub.RefusedError
		return errors.As(err, &refused)
	}
	return &report.Inbox{From: r.Source(), Refuses: about}, nil
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
