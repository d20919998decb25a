// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"fmt"
	"io"
	"strings"

	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
)

// Write prints for people what was done about each node, or would be.
func (r *Result) Write(w io.Writer) {
	var alike plain.Alike
	for _, n := range r.Published {
		what, too := fmt.Sprintf("generation %d", n.Generation), ""
		if len(n.RunsOn) > 0 {
			too = fmt.Sprintf("\tlive on %s, too", plain.Count(len(n.RunsOn), "earlier layer"))
		}
		alike.Add(n.Node, what+"\t"+n.Overlay+too, what+strings.TrimRight("\t"+n.Layer, "\t")+too)
	}
	for _, n := range r.Resigned {
		alike.Add(n.Node, "renewed\t"+n.Overlay, "renewed")
	}
	for _, n := range r.Held {
		alike.Add(n.Node, "held\t"+hold.String(n.Holds), "held\t"+hold.String(n.Holds))
	}
	for _, n := range r.Ended {
		alike.Add(n.Node, "not held any more\t"+hold.String(n.Holds), "not held any more\t"+hold.String(n.Holds))
	}
	for _, name := range r.Left {
		alike.Add(name, "left", "left")
	}
	for _, name := range r.Kept {
		alike.Add(name, "kept as it is", "kept as it is")
	}
	alike.Print(w, "")
}

// Tell says what came of it all where the fleet is published.
func (r *Result) Tell(to string, say func(format string, args ...any)) {
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
	if n := len(rejected); n > plain.Few {
		rejected = []string{plain.Count(n, "digest")}
	}
	for _, d := range rejected {
		say("%s the reject list: %s", added, d)
	}
	for _, d := range r.Allowed {
		say("%s the reject list: %s", removed, d)
	}
	say("%s: fleet %s %s at generation %d: %d published, %d renewed, %d unchanged%s",
		to, r.Fleet, is, r.Generation, len(r.Published), len(r.Resigned), r.Unchanged, also)
}

// Write prints for people what was verified: nodes that are as they should be together where they
// are many, and everything else by itself.
func (r *Report) Write(w io.Writer) {
	var fine []string
	for _, f := range r.Findings {
		if name, ok := strings.CutPrefix(f.What, "node:"); ok && f.Verdict == "ok" && f.Detail == "" {
			fine = append(fine, name)
		}
	}
	many := len(fine) > plain.Few
	if many {
		cli.Printf(w, "ok\t%s\t%s\n", plain.Count(len(fine), "node"), plain.Some(fine, plain.Few))
	}
	for _, f := range r.Findings {
		if !many || f.Verdict != "ok" || f.Detail != "" || !strings.HasPrefix(f.What, "node:") {
			cli.Printf(w, "%s\t%s\t%s\n", f.Verdict, f.What, f.Detail)
		}
	}
}

// Write prints for people what is kept and what goes.
func (p *Pruned) Write(w io.Writer) {
	for _, g := range p.Generations {
		verdict := "keep"
		if !g.Keep {
			verdict = "remove"
		}
		cli.Printf(w, "generation %s  %s\n", g.Generation, verdict)
	}
	for _, l := range p.Layers {
		cli.Printf(w, "%s  %s %s  %s\n", l.Digest, l.Version, l.Variant, kept(l.Keep))
	}
	for _, s := range p.Services {
		cli.Printf(w, "service  %s  %s\n", s.Image, kept(s.Keep))
	}
	for _, name := range p.Stays {
		cli.Printf(w, "%s  stays\n", name)
	}
}

// kept is the verdict on what stays for a reason, "" where there is none.
func kept(why string) string {
	if why == "" {
		return "remove"
	}
	return "keep: " + why
}

// Tell says how much goes, or is gone; of what stays against the will of all an error tells.
func (p *Pruned) Tell(say func(format string, args ...any)) {
	var old, gone, images int
	for _, g := range p.Generations {
		if !g.Keep {
			old++
		}
	}
	for _, l := range p.Layers {
		if l.Keep == "" {
			gone++
		}
	}
	for _, s := range p.Services {
		if s.Keep == "" {
			images++
		}
	}
	what := plain.Count(old, "generation") + " and " + plain.Count(gone, "layer")
	if len(p.Services) > 0 {
		what += ", " + plain.Count(images, "image") + " of services"
	}
	switch {
	case len(p.Stays) > 0:
	case p.Removed:
		say("removed %s, freed %s", what, plain.Bytes(p.Freed))
	default:
		say("would remove %s", what)
	}
}
