// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// nodeStatus shows all that is known of a node.
func (a *app) nodeStatus(ctx context.Context, of shown, name string) error {
	n, err := of.node(ctx, name)
	if err != nil {
		return err
	}
	return cmp.Or(a.show(fleetStatus{Node: &n}, func() { a.printNode(n) }), drift(view.KindOf(n.Condition).Trouble))
}

// maxPast is how much of a node's history is printed.
const maxPast = 10

func (a *app) printNode(n query.Node) {
	cli.Printf(a.out, "%s: %s, %s\n", n.Name, n.Condition, cmp.Or(n.Why, view.KindOf(n.Condition).Says))
	t := &columns{}
	line := func(what, format string, args ...any) { t.add(what, fmt.Sprintf(format, args...)) }
	if len(n.Labels) > 0 {
		line("labels", "%s", strings.Join(n.Labels, " "))
	}
	if len(n.Sets) > 0 {
		line("sets", "%s", strings.Join(n.Sets, " "))
	}
	if p := n.Published; p != nil {
		line("published", "generation %d, overlay %s%s", p.Generation, p.Overlay, ofLayer("", p.Layer))
		if len(p.Holds) > 0 {
			line("held", "%s", hold.String(p.Holds))
		}
	} else {
		line("published", "nothing")
	}
	if r := n.Report; r != nil {
		line("reported", "generation %d, overlay %s%s, at %s", r.Generation, cmp.Or(r.Overlay, "unknown"), ofLayer(r.LayerVersion, r.Layer), when(n.Received))
		if r.Staged != "" {
			line("staged", "overlay %s, for the next boot", r.Staged)
		}
		line("agent", "%s, %s", cmp.Or(r.Agent, "unknown"), r.Mode)
		if k := r.Keys; k != nil {
			line("keys", "version %d, boot files of version %d", k.Version, k.BootFiles)
		}
		for _, x := range []struct {
			name string
			axis spec.Axis
		}{{"health", r.Axes.Health}, {"sync", r.Axes.Sync}, {"tracking", r.Axes.Tracking}, {"activity", r.Axes.Activity}} {
			line(x.name, "%s", axisLine(x.axis))
		}
		if w := r.NextWindow; w != nil {
			line("window", "%s, from %s to %s", w.Name, when(w.From), when(w.To))
		}
	} else {
		line("reported", "nothing")
	}
	for _, l := range n.Slots {
		line("slot", "%s since %s", l.Group, when(l.Since))
	}
	if n.Key != "" {
		line("key", "%s, %s, counts since %s", n.Key, n.Grade, when(n.KeySince))
	}
	if o := n.Offered; o != nil {
		line("other key", "%s since %s, which is not counted: %s", o.Report.Key, when(o.At), o.Why)
	}
	if h := n.Hint; h != nil {
		line("unproven", "%s says at %s that its loader boots nothing: %s", h.From, when(h.At), h.Why)
		if h.Code != "" {
			line("", "and shows code %s, for 'caisson rescue': compare it with the console", h.Code)
		}
	}
	t.print(a.out, "  ")
	a.printReport(n, t)
}

// printReport prints the lists of a node: drift, kinds, operations, services, history.
func (a *app) printReport(n query.Node, t *columns) {
	part := func(title string) {
		if len(t.rows) > 0 {
			cli.Printf(a.out, "%s\n", title)
			t.print(a.out, "  ")
		}
	}
	if r := n.Report; r != nil {
		for _, d := range r.Drift {
			t.add(d.Item+" "+d.Key, driftLine(d))
		}
		part("drift")
		for _, i := range r.Items {
			t.add(i.Name, string(i.State), fmt.Sprintf("%d as wanted", i.Applied), i.Error)
		}
		part("settings")
		for _, o := range r.Operations {
			next := ""
			if !o.Next.IsZero() {
				next = "next " + when(o.Next)
			}
			t.add(o.Name, string(o.State), next, o.Detail)
		}
		part("operations")
		if r.More > 0 {
			cli.Printf(a.out, "and %d more than a report holds: caisson-agent status on the node has them\n", r.More)
		}
	}
	for _, s := range n.Services {
		was := cmp.Or(s.Published, "nothing")
		if !s.Read {
			was = "what was not read"
		}
		t.add(s.Name, "sent "+was, "reports "+cmp.Or(s.Reported, "nothing"))
	}
	part("services")
	for _, e := range n.History[:min(len(n.History), maxPast)] {
		t.add(when(e.At), e.What)
	}
	part("history")
}

// driftLine says what is wanted and what is, who did it and since when, as far as the node
// knows.
func driftLine(d spec.Drift) string {
	text := fmt.Sprintf("wanted %q, found %q: %s", d.To, d.From, d.Action)
	if d.Count > 0 {
		text += " after " + plain.Count(d.Count, "correction")
	}
	if d.Rival != "" {
		text += ", by " + d.Rival
	}
	if !d.Since.IsZero() {
		text += ", since " + when(d.Since)
	}
	if d.Reason != "" {
		text += ": " + d.Reason
	}
	return text
}

func ofLayer(version, digest string) string {
	if digest == "" {
		return ""
	}
	return ", layer " + strings.TrimSpace(version+" "+digest)
}

func axisLine(x spec.Axis) string {
	text := x.State
	if !x.Since.IsZero() {
		text += ", since " + when(x.Since)
	}
	if !x.Until.IsZero() {
		text += ", until " + when(x.Until)
	}
	if x.Detail != "" {
		text += ": " + x.Detail
	}
	return text
}
