// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
)

// published prints what publish, refresh, retire and the verbs of holds did, or would do.
func (a *app) published(to string, r *publish.Result, err error) error {
	if err != nil {
		return err
	}
	return a.show(r, func() {
		var alike alike
		for _, n := range r.Published {
			what, too := fmt.Sprintf("generation %d", n.Generation), ""
			if len(n.RunsOn) > 0 {
				too = fmt.Sprintf("\tlive on %s, too", plain.Count(len(n.RunsOn), "earlier layer"))
			}
			alike.add(n.Node, what+"\t"+n.Overlay+too, what+strings.TrimRight("\t"+n.Layer, "\t")+too)
		}
		for _, n := range r.Resigned {
			alike.add(n.Node, "renewed\t"+n.Overlay, "renewed")
		}
		for _, n := range r.Held {
			alike.add(n.Node, "held\t"+hold.String(n.Holds), "held\t"+hold.String(n.Holds))
		}
		for _, n := range r.Ended {
			alike.add(n.Node, "not held any more\t"+hold.String(n.Holds), "not held any more\t"+hold.String(n.Holds))
		}
		for _, name := range r.Left {
			alike.add(name, "left", "left")
		}
		for _, name := range r.Kept {
			alike.add(name, "kept as it is", "kept as it is")
		}
		alike.print(a, "")
		also := ""
		if n := len(r.Held); n > 0 {
			also = fmt.Sprintf(", %d held", n)
		}
		if n := len(r.Ended); n > 0 {
			also += fmt.Sprintf(", %d not held any more", n)
		}
		is, added, removed := "is", "added to", "removed from"
		if r.DryRun {
			is, added, removed = "would be", "would be added to", "would be removed from"
		}
		rejected := r.Rejected
		if n := len(rejected); n > fewNodes {
			rejected = []string{plain.Count(n, "digest")}
		}
		for _, d := range rejected {
			a.say("%s the reject list: %s", added, d)
		}
		for _, d := range r.Allowed {
			a.say("%s the reject list: %s", removed, d)
		}
		a.say("%s: fleet %s %s at generation %d: %d published, %d renewed, %d unchanged%s",
			to, r.Fleet, is, r.Generation, len(r.Published), len(r.Resigned), r.Unchanged, also)
	})
}

// alike prints nodes, those of which the same is to be said together where they are many.
type alike struct {
	groups []*sameNodes
	by     map[string]*sameNodes
}

// sameNodes are nodes of which the same is said.
type sameNodes struct {
	says  string // of all
	names []string
	each  []string // said of one alone
}

// fewNodes is how many get a line each.
const fewNodes = 8

// add takes a node: what is said of it in a line of its own, and what of it among others.
func (x *alike) add(node, each, says string) {
	g := x.by[says]
	if g == nil {
		g = &sameNodes{says: says}
		if x.groups = append(x.groups, g); x.by == nil {
			x.by = map[string]*sameNodes{}
		}
		x.by[says] = g
	}
	g.names, g.each = append(g.names, node), append(g.each, each)
}

func (x *alike) print(a *app, indent string) {
	for _, g := range x.groups {
		if len(g.names) > fewNodes {
			a.row(indent, plain.Count(len(g.names), "node"), g.says)
			cli.Printf(a.out, "%s  %s\n", indent, plain.Some(g.names, fewNodes))
			continue
		}
		for i, name := range g.names {
			a.row(indent, name, g.each[i])
		}
	}
}

// row prints a name and what is said of it, in columns that tabs divide.
func (a *app) row(indent, name, says string) {
	cli.Printf(a.out, "%s%s", indent, name)
	for cell := range strings.SplitSeq(says, "\t") {
		cli.Printf(a.out, "\t%s", cell)
	}
	cli.Printf(a.out, "\n")
}
