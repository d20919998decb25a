// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"io"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Group is nodes with the same changes: those of the first of them.
type Group struct {
	NodePlan
	Names []string
}

// Groups returns them, and how many nodes have no changes.
func (p *Plan) Groups() (groups []*Group, unchanged int) {
	byKey := map[string]*Group{}
	for _, n := range p.Nodes {
		if len(n.Changes) == 0 {
			unchanged++
			continue
		}
		key := fmt.Sprint(n.Class, n.AtOnce, n.Next.text(), n.Swap.text(), n.Rollout)
		for _, c := range n.Changes {
			if c.Item == "node" {
				key += c.Item + c.Action + "\n" // each has its own name as key
				continue
			}
			key += fmt.Sprintf("\n%q %q %q %q %s", c.Item, c.Key, c.From, c.To, c.Waits.text())
		}
		g := byKey[key]
		if g == nil {
			g = &Group{NodePlan: n}
			byKey[key] = g
			groups = append(groups, g)
		}
		g.Names = append(g.Names, n.Name)
	}
	return groups, unchanged
}

func (g *Group) write(w io.Writer) {
	fmt.Fprintf(w, "%s: %s: %s\n", plain.Count(len(g.Names), "node"), g.Class, g.Why)
	fmt.Fprintf(w, "  %s\n", plain.Some(g.Names, shown))
	for _, c := range g.Changes {
		fmt.Fprintf(w, "  %s\n", c)
	}
	if g.AtOnce {
		fmt.Fprintln(w, "  the layer waits until the node starts over; the other changes are made at once")
	}
	if g.Swap != nil {
		fmt.Fprintf(w, "  reboots by itself: %s\n", g.Swap.text())
	}
	if g.Next != nil {
		fmt.Fprintf(w, "  disturbed next by %s\n", g.Next.text())
	}
	if g.Rollout != "" {
		fmt.Fprintf(w, "  publish refuses this: rollout %s is under way\n", g.Rollout)
	}
	fmt.Fprintln(w)
}

// Write prints the plan for people: nodes with the same changes as one group.
func (p *Plan) Write(w io.Writer) {
	for _, mark := range p.Marks {
		fmt.Fprintln(w, mark)
	}
	groups, unchanged := p.Groups()
	for _, g := range groups {
		g.write(w)
	}
	p.writeWhy(w, "held:", func(n NodePlan) string { return n.Held })
	p.writeWhy(w, "without a key: cannot have", func(n NodePlan) string { return strings.Join(n.NoKey, ", ") })
	for _, name := range p.NotLooked {
		fmt.Fprintf(w, "secret %s: not looked at\n", name)
	}
	for _, l := range p.Layers {
		if l.Action == spec.ClassNone {
			continue
		}
		what := "to be built, then published"
		if l.Action == spec.ActionChange {
			what = strings.Join(l.From, ", ") + " → " + l.Digest
		}
		if l.Differs != "" {
			what += "; differs from the default in " + strings.ReplaceAll(l.Differs, " ", ", ")
		}
		if l.Fast {
			what += "; it was built with --fast, so nodes fetch more than a build without costs them"
		}
		fmt.Fprintf(w, "layer %s (%s): %s\n", l.Variant, plain.Count(l.Nodes, "node"), what)
		for _, c := range l.Advisories {
			if len(l.Advisories) > 1 {
				fmt.Fprintf(w, "instead of %s\n", c.From)
			}
			c.Write(w)
		}
	}
	if p.Terms != nil && p.Changed() {
		p.Terms.write(w)
	}
	fmt.Fprintf(w, "%s changed, %s unchanged, %s\n", plain.Count(len(p.Nodes)-unchanged, "node"),
		plain.Count(unchanged, "node"), plain.Count(len(p.Layers), "layer variant"))
}

// writeWhy prints the nodes of which something is said, those of which the same is said in one line.
func (p *Plan) writeWhy(w io.Writer, what string, of func(NodePlan) string) {
	names := map[string][]string{}
	var order []string
	for _, n := range p.Nodes {
		why := of(n)
		if why == "" {
			continue
		}
		if names[why] == nil {
			order = append(order, why)
		}
		names[why] = append(names[why], n.Name)
	}
	for _, why := range order {
		nodes := names[why]
		fmt.Fprintf(w, "%s %s %s\n  %s\n\n", plain.Count(len(nodes), "node"), what, report.Printable(why, 200), plain.Some(nodes, shown))
	}
}

// String is the change in one line: what it is about, and from what to what.
func (c Change) String() string {
	sign, text := "~", report.Printable(c.From, 60)+" → "+report.Printable(c.To, 60)
	switch c.Action {
	case spec.ActionAdd:
		sign, text = "+", report.Printable(c.To, 100)
	case spec.ActionRemove:
		sign, text = "-", report.Printable(c.From, 100)
	}
	if c.Fetch > 0 {
		text += "; " + plain.Bytes(c.Fetch) + " to fetch"
	}
	if c.Waits != nil {
		text += "; waits for " + c.Waits.text()
	}
	switch c.Item {
	case "node":
		return sign + " node"
	case c.Key: // a node has one layer
		return fmt.Sprintf("%s %s: %s", sign, c.Item, text)
	}
	return fmt.Sprintf("%s %s %s: %s", sign, c.Item, report.Printable(c.Key, 100), text)
}

// shown is how many names of a group are printed.
const shown = 8
