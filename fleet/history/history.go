// SPDX-License-Identifier: Apache-2.0

// Package history looks back: at the generations of a fleet, at what one node had in
// each, and at what lies between two of them.
//
// What it tells passed fleet/publish's checks: earlier roots are verified with today's
// keys, and what only earlier keys signed is marked. It writes nothing. A [Table] keeps answers
// for pages that ask again and again.
package history

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/advisory"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/plan"
)

// Entry is one generation. A list of them is what history -o json prints, the newest
// first.
type Entry struct {
	published.Generation
	Verb      string    `json:"verb,omitempty"` // what took the generation
	Author    string    `json:"author,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Commit    string    `json:"commit,omitempty"` // of the site, with a "+" behind it where the site differed from it
	At        time.Time `json:"at,omitzero"`
	Published int       `json:"published"`         // nodes that were given an overlay
	Nodes     int       `json:"nodes"`             // in the fleet
	Refused   string    `json:"refused,omitempty"` // why nothing more is known
	Keys      []Key     `json:"keys"`              // that signed it, which is proven
	Mark      string    `json:"mark,omitempty"`    // why what it says does not count
	Node      *Node     `json:"node,omitempty"`    // with --node

	Changes []plan.Change `json:"changes"` // with --key: those of the setting
}

// Key signed a generation.
type Key struct {
	ID   string `json:"id"`
	Name string `json:"name,omitempty"` // of its file, where that is known
}

// Why a generation does not count.
const (
	byRevoked = "signed by a key that was revoked later"
	byOthers  = "signed by keys that count no more"
	foreign   = "not given out by who revoked a key later"
)

// Node holds what a node had from a generation on.
type Node struct {
	Overlay string      `json:"overlay,omitempty"` // digest; absent where it was not published
	Layer   string      `json:"layer,omitempty"`
	Holds   []spec.Hold `json:"holds,omitempty"`
	Since   uint64      `json:"since,omitempty"` // generation that gave it the overlay, where this one did not

	Content spec.Content `json:"-"` // what its row names, to be read
}

func (n Node) is(other Node) bool {
	return n.Overlay == other.Overlay && n.Layer == other.Layer && slices.Equal(n.Holds, other.Holds)
}

// List lists the generations that are kept. With a node only those are listed in which
// it got something else, or its holds changed, also since the last one before that counts. names
// has the names of keys, by id.
func List(ctx context.Context, f *published.Fleet, node string, names map[string]string) ([]Entry, error) {
	generations, err := f.Generations(ctx)
	if err != nil {
		return nil, err
	}
	list := []Entry{}
	var last, counted Node // before the oldest generation there was nothing
	for _, g := range slices.Backward(generations) {
		e := Entry{Generation: g, Keys: []Key{}, Changes: []plan.Change{}}
		past, by, proven, err := f.PastOf(ctx, g)
		switch {
		case refusal.Of(err) != "":
			e.Refused = err.Error()
			list = append(list, e)
			continue
		case err != nil:
			return nil, err
		}
		e.At = past.Said.IssuedAt
		for _, s := range past.Root.Shards {
			e.Nodes += s.Nodes
		}
		if c := past.Root.Change; c != nil {
			e.Verb, e.Author, e.Reason, e.Commit, e.Published, e.At = c.Verb, c.Author, c.Reason, c.Commit, c.Published, time.Unix(c.At, 0).UTC()
		}
		e.Keys = append(e.Keys, plain.Each(by, func(id string) Key { return Key{id, names[id]} })...)
		e.Mark = mark(f, g, by, proven)
		if node != "" {
			had, err := of(ctx, past, node)
			if err != nil {
				return nil, err
			}
			same := had.is(last) && (e.Mark != "" || had.is(counted))
			given := had.Overlay != last.Overlay || e.Mark == "" && had.Overlay != counted.Overlay
			if last = had; e.Mark == "" {
				counted = had
			}
			if same {
				continue
			}
			if given && had.Overlay != "" && had.Content.Generation != g.Number { // who published this one did not
				had.Since = had.Content.Generation
				e.Verb, e.Author, e.Reason, e.Commit = "", "", "", ""
			}
			e.Node = &had
		}
		list = append(list, e)
	}
	if node != "" && len(list) == 0 { // an empty list would say that nothing ever changed
		rows, err := f.Nodes(ctx)
		if err != nil {
			return nil, err
		}
		return nil, noNode(node, rows)
	}
	slices.Reverse(list)
	return list, nil
}

// mark returns why what a generation says does not count, "" where it does.
func mark(f *published.Fleet, g published.Generation, by []string, proven bool) string {
	switch {
	case !proven && slices.ContainsFunc(by, f.Revoked):
		return byRevoked
	case !proven:
		return byOthers
	case f.Foreign(g):
		return foreign
	}
	return ""
}

// compared reads generations that are compared, with the marks of those that have one.
func compared(ctx context.Context, f *published.Fleet, list ...published.Generation) (all []*published.Past, marks []string, err error) {
	for _, g := range list {
		past, by, proven, err := f.PastOf(ctx, g)
		if err != nil {
			return nil, nil, err
		}
		if why := mark(f, g, by, proven); why != "" {
			marks = append(marks, fmt.Sprintf("generation %s: %s", g, why))
		}
		all = append(all, past)
	}
	return all, marks, nil
}

func of(ctx context.Context, past *published.Past, node string) (Node, error) {
	row, _, err := past.Row(ctx, node)
	return Node{Overlay: row.Overlay, Layer: row.Layer, Holds: row.Holds, Content: content(row)}, err
}

// Between returns what changed from one generation to another, node by node, in the
// form of a plan: what going from the first to the second did, or would do. With a node
// it is about that one.
func Between(ctx context.Context, f *published.Fleet, from, to published.Generation, node string) (*plan.Plan, error) {
	both, marks, err := compared(ctx, f, from, to)
	if err != nil {
		return nil, err
	}
	var rows [2]map[string]spec.Published
	for i, past := range both {
		if rows[i], err = past.Nodes(ctx); err != nil {
			return nil, err
		}
	}
	names := maps.Clone(rows[0])
	maps.Copy(names, rows[1])
	if node != "" {
		if _, ok := names[node]; !ok {
			return nil, noNode(node, names)
		}
		names = map[string]spec.Published{node: {}}
	}
	l := layers(ctx, f)
	found := plan.NewDifferences(l)
	out := &plan.Plan{Nodes: []plan.NodePlan{}, Layers: []plan.LayerPlan{}, NotLooked: []string{}, Marks: marks}
	for _, name := range plain.Names(maps.Keys(names)) {
		a, wasThere := rows[0][name]
		b, isThere := rows[1][name]
		d := plan.Difference{Node: name, HoldFrom: published.HoldText(a.Holds), HoldTo: published.HoldText(b.Holds)}
		if wasThere && (!isThere || a.Overlay != b.Overlay) {
			if d.From, err = f.Content(ctx, name, content(a)); err != nil {
				return nil, err
			}
		}
		if isThere && (!wasThere || a.Overlay != b.Overlay) {
			if d.To, err = f.Content(ctx, name, content(b)); err != nil {
				return nil, err
			}
		}
		out.Nodes = append(out.Nodes, found.Plan(d))
	}
	return out, l.Err
}

// kept returns the generations that are kept, the newest first, of which there must be one.
func kept(ctx context.Context, f *published.Fleet) ([]published.Generation, error) {
	list, err := f.Generations(ctx)
	if err == nil && len(list) == 0 {
		err = errors.New("no generation is kept")
	}
	return list, err
}

// Nodes returns in what a node differs from another one in a generation, the newest where none is
// named, as a plan of the first that would have what the second has.
func Nodes(ctx context.Context, f *published.Fleet, in []published.Generation, from, to string) (*plan.Plan, error) {
	var err error
	if len(in) == 0 {
		if in, err = kept(ctx, f); err != nil {
			return nil, err
		}
	}
	past, marks, err := compared(ctx, f, in[0])
	if err != nil {
		return nil, err
	}
	rows, err := past[0].Nodes(ctx)
	if err != nil {
		return nil, err
	}
	var both [2]*spec.Overlay
	for i, name := range []string{from, to} {
		row, ok := rows[name]
		if !ok {
			return nil, noNode(name, rows)
		}
		if both[i], err = f.Content(ctx, name, content(row)); err != nil {
			return nil, err
		}
	}
	d := plan.Difference{Node: from, From: both[0], To: both[1],
		HoldFrom: published.HoldText(rows[from].Holds), HoldTo: published.HoldText(rows[to].Holds)}
	l := layers(ctx, f)
	return &plan.Plan{Nodes: []plan.NodePlan{plan.NewDifferences(l).Plan(d)}, Layers: []plan.LayerPlan{}, NotLooked: []string{},
		Marks: marks}, l.Err
}

// Advise adds to a plan what the layers close that its nodes go to, unless by is nil.
func Advise(ctx context.Context, f *published.Fleet, p *plan.Plan, by plan.Advise) error {
	if by == nil {
		return nil
	}
	l := layers(ctx, f)
	moves := map[[2]string]int{} // nodes
	for _, n := range p.Nodes {
		for _, c := range n.Changes {
			if c.Item == "layer" && c.Key == "layer" && c.Action == spec.ActionChange {
				moves[[2]string{c.From, c.To}]++
			}
		}
	}
	for m, nodes := range moves {
		from, to := l.Published(m[0]), l.Published(m[1])
		if to == nil {
			p.Layers = append(p.Layers, plan.LayerPlan{Variant: "unknown", Digest: m[1], Action: spec.ActionChange, From: m[:1], Nodes: nodes,
				Advisories: []*advisory.Change{{From: m[0], Why: "the layer cannot be read"}}})
			continue
		}
		p.Layers = append(p.Layers, plan.LayerPlan{Variant: to.Variant, Recipe: to.Recipe, Digest: m[1], Action: spec.ActionChange, From: m[:1],
			Nodes: nodes, Advisories: []*advisory.Change{by(site.Variant{Name: to.Variant, Recipe: to.Made}, from, to)}})
	}
	slices.SortFunc(p.Layers, func(a, b plan.LayerPlan) int {
		return cmp.Or(cmp.Compare(a.From[0], b.From[0]), cmp.Compare(a.Digest, b.Digest))
	})
	return l.Err
}

// Overlays returns what lies between two overlays of a node, with what differs in their layers.
func Overlays(ctx context.Context, f *published.Fleet, from, to *spec.Overlay) ([]plan.Change, error) {
	l := layers(ctx, f)
	return plan.NewDifferences(l).Plan(plan.Difference{Node: to.Node, From: from, To: to}).Changes, l.Err
}

func noNode(name string, rows map[string]spec.Published) error {
	return cli.Usage(cmp.Or(plain.DidYouMean(name, maps.Keys(rows)), "it is in no row"), "node %q is not published there", name)
}

// Setting lists the generations in which the setting KIND/KEY changed on a node, or one below it,
// the newest first, each with the change: since when a value holds, and who wrote it. What a node
// had is compared with what it had in the generation before that is kept.
func Setting(ctx context.Context, f *published.Fleet, node, key string, names map[string]string) ([]Entry, error) {
	list, err := List(ctx, f, node, names)
	if err != nil {
		return nil, err
	}
	l := layers(ctx, f)
	all := plan.NewDifferences(l)
	last, found := &spec.Overlay{}, []Entry{}
	for _, e := range slices.Backward(list) {
		if e.Node == nil {
			found = append(found, e) // nothing is known of it
			continue
		}
		now := &spec.Overlay{}
		if e.Node.Overlay != "" {
			if now, err = f.Content(ctx, node, e.Node.Content); err != nil {
				return nil, err
			}
		}
		for _, c := range all.Plan(plan.Difference{Node: node, From: last, To: now}).Changes {
			if at := c.Item + "/" + c.Key; at == key || strings.HasPrefix(at, key+"/") || c.Item == key {
				e.Changes = append(e.Changes, c)
			}
		}
		if last = now; len(e.Changes) > 0 {
			found = append(found, e)
		}
	}
	slices.Reverse(found)
	return found, l.Err
}

// Detail is one generation in full.
type Detail struct {
	Entry
	Before *published.Generation `json:"before,omitempty"` // the one before that is kept; absent for the oldest
	Plan   *plan.Plan            `json:"plan,omitempty"`   // from that one to this
}

// Show returns a generation, with what it changed.
func Show(ctx context.Context, f *published.Fleet, g published.Generation, names map[string]string, by plan.Advise) (*Detail, error) {
	list, err := List(ctx, f, "", names)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(list, func(e Entry) bool { return e.Generation == g })
	if i < 0 {
		return nil, fmt.Errorf("generation %s was pruned meanwhile", g)
	}
	d := &Detail{Entry: list[i]}
	if i+1 < len(list) && list[i+1].Refused == "" && d.Refused == "" {
		d.Before = &list[i+1].Generation
		if d.Plan, err = Between(ctx, f, *d.Before, g, ""); err == nil {
			err = Advise(ctx, f, d.Plan, by)
		}
	}
	return d, err
}

// layers are those of a fleet, as it was read: one that is gone, or that nobody released,
// is not known, and nothing is to come.
func layers(ctx context.Context, f *published.Fleet) *release.Planned {
	return &release.Planned{Context: ctx, Read: f.Layer, Say: f.Say}
}

func content(row spec.Published) spec.Content {
	return spec.Content{Overlay: row.Overlay, Size: row.Size, Layer: row.Layer, Generation: row.Generation}
}

// Write prints generations for people, a line each.
func Write(w io.Writer, list []Entry) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i := 0; i < len(list); i++ {
		e, says := list[i], saysOf(list[i])
		of := e.Generation.String()
		if e.Refused+e.Mark != "" { // there may be as many of them as there are generations
			from := i
			for i+1 < len(list) && saysOf(list[i+1]) == says {
				i++
			}
			if i > from {
				of = list[i].Generation.String() + ".." + of
			}
		}
		if e.Refused != "" {
			cli.Printf(t, "%s\t\t%s\n", of, says[0])
			continue
		}
		cli.Printf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", of, e.Signers(), e.At.Format(time.RFC3339), says[0], says[1], says[2], says[3])
		for _, c := range e.Changes {
			cli.Printf(t, "\t%s\n", c)
		}
	}
	_ = t.Flush() // the verb ends with what its output could not take
}

// Write prints a generation for people.
func (d *Detail) Write(w io.Writer) {
	var c plain.Columns
	line := func(name, value string) {
		if value != "" {
			c.Add(name, value)
		}
	}
	line("generation", d.Generation.String())
	line("refused", d.Refused)
	line("mark", d.Mark)
	if d.Refused == "" {
		line("signed by", d.Signers())
		line("at", d.At.Format(time.RFC3339))
		line("verb", d.Verb)
		line("author", d.Author)
		line("reason", d.Reason)
		line("site", d.Commit)
		line("nodes", fmt.Sprintf("%d, of which %d were given an overlay", d.Nodes, d.Published))
	}
	c.Print(w, "")
	if d.Plan == nil {
		return
	}
	cli.Printf(w, "\nsince generation %s\n", d.Before)
	d.Plan.Write(w)
}

// saysOf returns what a line of the history says beside its generation, its keys and its time: why
// nothing is known, or verb, what was published, author and reason.
func saysOf(e Entry) [4]string {
	if e.Refused != "" {
		return [4]string{strings.TrimPrefix(e.Refused, "fleet:gen-"+e.Generation.String()+": ")}
	}
	what := plain.Count(e.Published, "node")
	if e.Node != nil {
		what = cmp.Or(e.Node.Overlay, "not published")
		what = what[:min(len(what), len(digest.FromHex(""))+12)]
		for _, h := range e.Node.Holds {
			what += ", " + h.Kind
		}
	}
	reason := e.Reason
	if e.Node != nil && e.Node.Since > 0 {
		reason = fmt.Sprintf("at the latest since generation %d", e.Node.Since)
	}
	if e.Commit != "" {
		reason = strings.Trim(reason+"; site "+e.ShortCommit(), "; ")
	}
	return [4]string{e.Verb, what, e.Author, strings.Trim(reason+"; "+e.Mark, "; ")}
}

// ShortCommit is the commit as git abbreviates it, with the "+" of one that the site differed from.
func (e Entry) ShortCommit() string {
	id, differed := strings.CutSuffix(e.Commit, "+")
	if id = id[:min(len(id), 12)]; differed {
		id += "+"
	}
	return id
}

// Signers names the keys: by their files, or by the beginnings of their ids.
func (e Entry) Signers() string {
	return strings.Join(plain.Each(e.Keys, func(k Key) string { return cmp.Or(k.Name, k.ID[:min(len(k.ID), 12)]) }), ",")
}
