// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/report"
	"github.com/caisson-os/caisson/bootagent/say"
	"github.com/caisson-os/caisson/bootagent/track"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Poster sends a letter as a machine that a bootstrap and a way describe.
type Poster func(ctx context.Context, b spec.Bootstrap, way track.Way, l report.Letter) error

// Report returns what this node tells its fleet of a status, and where it goes; nil
// where its overlay says nothing of reports.
func (n *Node) Report(st *spec.Status) (*spec.Report, *spec.Reporting, error) {
	found, err := n.running()
	if err != nil {
		return nil, nil, err
	}
	to, err := say.Reporting(&found.Overlay)
	if to == nil || err != nil {
		return nil, nil, err
	}
	r := say.Report(st, to, found.Overlay.Maintenance, time.Now())
	if t, err := n.trace(found); err == nil { // a report says more without its boot than none
		r.SetBoot(t)
	}
	return r, to, nil
}

// Poll is how long this node's overlay wants from one question to the registry to the
// next; 0 where it says nothing, or what nobody may want.
func (n *Node) Poll() time.Duration {
	found, err := n.running()
	if err != nil || found.Overlay.Agent == nil || rules.Poll(found.Overlay.Agent.Poll) != nil {
		return 0
	}
	return time.Duration(found.Overlay.Agent.Poll) * time.Second
}

// Last is the status after the last run of the service; false where there was none
// since this root came up.
func (n *Node) Last() (*spec.Status, bool) {
	last := n.last()
	return &last, last.Kind != "" && last.RootID == n.scopes.Root
}

// Reporter opens what signs and sends reports, and makes this node's key where it has
// none. It stays usable when the node is closed.
func (n *Node) Reporter() (*report.Reporter, error) {
	if n.follower == nil {
		return nil, n.unbound
	}
	r, err := report.Open(n.ReportDir(), n.grade(), n.post, n.say)
	if err != nil {
		return nil, err
	}
	return r, n.mayReport()
}

// ReportDir is where the numbers and the spool of reports are.
func (n *Node) ReportDir() string { return n.folder.Path(paths.Reports) }

// grade is how long the node's key lives: as long as its state.
func (n *Node) grade() spec.KeyGrade {
	if n.scopes.Disk != "" {
		return spec.KeyPinned
	}
	return spec.KeyBoot
}

// mayReport refuses a key that commands nodes: it would lie on every disk that it
// commands.
func (n *Node) mayReport() error {
	id, err := report.KeyID(n.ReportDir())
	if err != nil {
		return err
	}
	commanders, err := sign.ParsePublics(slices.Concat(n.follower.Bootstrap.Keys, n.follower.Bootstrap.EpochKeys))
	if err != nil {
		return err
	}
	if slices.ContainsFunc(commanders, func(k sign.Verifier) bool { return k.ID() == id }) {
		return fmt.Errorf("the key of this node is one that nodes obey: take report.pem out of %s, and that key out of the site", n.folder.Path("identity"))
	}
	return nil
}

var errNoPoster = errors.New("this program sends nothing to services")

// post sends a report.
func (n *Node) post(ctx context.Context, to spec.Reporting, raw []byte) error {
	l := report.Letter{URL: to.URL + report.Path, Body: raw, Token: true}
	if to.Registry != "" {
		l = report.Letter{Put: &report.Place{Registry: to.Registry, Node: n.follower.Identity.Node}, Body: raw}
	}
	return n.send(ctx, l)
}

// send sends a letter as this machine, by the clock of now.
func (n *Node) send(ctx context.Context, l report.Letter) error {
	if n.o.Post == nil {
		return errNoPoster
	}
	s, err := n.folder.Load()
	if err != nil {
		return err
	}
	return n.o.Post(ctx, n.follower.Bootstrap, n.way(s, n.follower.Identity), l)
}

// RecordReport notes in systemd's journal that the node tells news.
func (n *Node) RecordReport(r *spec.Report) {
	fields := []events.Field{events.With("generation", r.Generation), events.With("tracking", r.Axes.Tracking.State), events.With("sync", r.Axes.Sync.State),
		events.With("health", r.Axes.Health.State), events.With("activity", r.Axes.Activity.State), events.With("drift", len(r.Drift))}
	if why := r.Axes.Health.Detail; why != "" {
		fields = append(fields, events.With("why", why))
	}
	n.record("report", fields...)
}
