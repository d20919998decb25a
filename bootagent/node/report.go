// SPDX-License-Identifier: Apache-2.0

package node

import (
	"time"

	"github.com/caisson-os/caisson/bootagent/events"
	"github.com/caisson-os/caisson/bootagent/report"
	"github.com/caisson-os/caisson/bootagent/say"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Report returns what this node tells its fleet of a status, and where it goes; nil
// where its overlay says nothing of reports.
func (n *Node) Report(st *spec.Status) (*spec.Report, *spec.Reporting, error) {
	found, err := n.effect.Running()
	if err != nil {
		return nil, nil, err
	}
	to, err := say.Reporting(&found.Overlay)
	if to == nil || err != nil {
		return nil, nil, err
	}
	r := say.Report(st, to, found.Overlay.Maintenance, time.Now())
	if t, err := n.look.Trace(found); err == nil { // a report says more without its boot than none
		r.SetBoot(t)
	}
	return r, to, nil
}

// Poll is how long this node's overlay wants from one question to the registry to the
// next; 0 where it says nothing, or what nobody may want.
func (n *Node) Poll() time.Duration {
	found, err := n.effect.Running()
	if err != nil || found.Overlay.Agent == nil || rules.Poll(found.Overlay.Agent.Poll) != nil {
		return 0
	}
	return time.Duration(found.Overlay.Agent.Poll) * time.Second
}

// Last is the status after the last run of the service; false where there was none
// since this root came up.
func (n *Node) Last() (*spec.Status, bool) {
	last := n.session.Last()
	return &last, last.Kind != "" && last.RootID == n.session.Scopes.Root
}

// Reporter opens what signs and sends reports, and makes this node's key where it has
// none. It stays usable when the node is closed.
func (n *Node) Reporter() (*report.Reporter, error) {
	if n.session.Tracker == nil {
		return nil, n.session.Unbound
	}
	r, err := report.Open(n.post.ReportDir(), n.post.Grade(), n.post.Post, n.session.Say)
	if err != nil {
		return nil, err
	}
	return r, n.post.MayReport()
}

// RecordReport notes in systemd's journal that the node tells news.
func (n *Node) RecordReport(r *spec.Report) {
	fields := []events.Field{events.With("generation", r.Generation), events.With("tracking", r.Axes.Tracking.State), events.With("sync", r.Axes.Sync.State),
		events.With("health", r.Axes.Health.State), events.With("activity", r.Axes.Activity.State), events.With("drift", len(r.Drift))}
	if why := r.Axes.Health.Detail; why != "" {
		fields = append(fields, events.With("why", why))
	}
	n.session.Record("report", fields...)
}
