// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"fmt"
	"path"
	"slices"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// NodeSetDoc is a NodeSet as it is written.
type NodeSetDoc struct {
	HeadDoc
	Kind shape.Text     `site:"kind,required" enum:"NodeSet"`
	Spec nodeSetSpecDoc `site:"spec,required"`
}

type nodeSetSpecDoc struct {
	Match   criteriaDoc `site:"match" doc:"what a node must have, all of it; every node when absent"`
	Exclude criteriaDoc `site:"exclude" doc:"what excludes a node again, any of it"`
}

type criteriaDoc struct {
	Labels shape.Map[shape.Text] `site:"labels" doc:"labels with their values"`
	Hosts  []string              `site:"hosts" doc:"names of nodes, or patterns with * and ?"`
	V      *tree.Value
}

// Example shows labels that stand where the criteria belong.
func (*criteriaDoc) Example(instead *tree.Value) string {
	if len(instead.Fields) == 0 || instead.Fields[0].Val.Kind != tree.Scalar {
		return ""
	}
	f := instead.Fields[0]
	return "labels: {" + shape.Quoted(f.Key) + ": " + shape.Quoted(f.Val.Text) + "}"
}

// Set is a NodeSet.
type Set struct {
	Name             string
	at               report.Pos
	labels, excluded []label
	hosts, not       []string // patterns of path.Match
}

// Sets say which nodes are meant: those of any of them; every node when nil.
type Sets []Set

// Has reports whether a node is meant.
func (s Sets) Has(n inventory.Node) bool {
	return s == nil || slices.ContainsFunc(s, func(one Set) bool { return one.Has(n) })
}

type label struct{ key, value string }

func (s Set) definition() string {
	return fmt.Sprintf("set %q labels %q hosts %q without labels %q hosts %q", s.Name, s.labels, s.hosts, s.excluded, s.not)
}

func (d NodeSetDoc) check(c *shape.Checker) Set {
	s := Set{Name: d.Metadata.Name.S, at: d.Metadata.Name.At, labels: labels(d.Spec.Match.Labels), excluded: labels(d.Spec.Exclude.Labels)}
	c.In("match", func() { s.hosts = patterns(c, d.Spec.Match.V, d.Spec.Match.Hosts) })
	c.In("exclude", func() { s.not = patterns(c, d.Spec.Exclude.V, d.Spec.Exclude.Hosts) })
	return s
}

func labels(m shape.Map[shape.Text]) []label {
	return plain.Each(m, func(e shape.Entry[shape.Text]) label { return label{e.Key.S, e.Val.S} })
}

// patterns returns those of the hosts of v that can be patterns.
func patterns(c *shape.Checker, v *tree.Value, hosts []string) []string {
	var out []string
	for i, host := range hosts {
		if _, err := path.Match(host, ""); err != nil || host == "" {
			c.Within([]string{"hosts", shape.Nth(i)}, func() {
				c.Errorf(c.Nth(v.Get("hosts"), i), "pattern", "as in stor-* or rack?-01", "%q is not a pattern of host names", host)
			})
			continue
		}
		out = append(out, host)
	}
	return out
}

// Has reports whether a node belongs to the set.
func (s Set) Has(n inventory.Node) bool {
	has := func(l label) bool {
		v, ok := n.Label(l.key)
		return ok && v == l.value
	}
	named := func(pattern string) bool {
		ok, err := path.Match(pattern, n.Name)
		return ok && err == nil
	}
	return !slices.ContainsFunc(s.labels, func(l label) bool { return !has(l) }) &&
		(len(s.hosts) == 0 || slices.ContainsFunc(s.hosts, named)) &&
		!slices.ContainsFunc(s.excluded, has) && !slices.ContainsFunc(s.not, named)
}

// warnOfNobody reports sets that no node belongs to: what names one has no effect.
func warnOfNobody(c *shape.Checker, sets []Set, nodes []inventory.Node) {
	for _, s := range sets {
		if len(nodes) == 0 || slices.ContainsFunc(nodes, s.Has) {
			continue
		}
		c.In(s.Name, func() {
			c.Warnf(s.at, "nobody", s.whyNobody(nodes), "no node belongs to the NodeSet %s: what is for it has no effect", s.Name)
		})
	}
}

// whyNobody is a hint: the first label or pattern that no node has.
func (s Set) whyNobody(nodes []inventory.Node) string {
	for _, l := range s.labels {
		if !slices.ContainsFunc(nodes, Set{labels: []label{l}}.Has) {
			return "no node has the label " + l.key + "=" + l.value + "; " + inventory.LabelHint(l.key, l.value, nodes)
		}
	}
	for _, pattern := range s.hosts {
		if !slices.ContainsFunc(nodes, Set{hosts: []string{pattern}}.Has) {
			return "no node has the name " + pattern + "; " + inventory.DidYouMean(pattern, nodes)
		}
	}
	return "match takes the nodes that have all of it, exclude takes away those that have any of it"
}

// fewNodes may be in one wave of any fleet, whatever their share of it.
const fewNodes = 16

// checkNodes refuses a wave that names what no node of the rollout has, and one that is large and
// does not say so: where a word is mistyped, it is the next wave that gets its nodes, and a number
// is mistyped as easily.
func (r Rollout) checkNodes(c *shape.Checker, nodes []inventory.Node) {
	mine, largest := r.of(nodes), 0
	if len(mine) == 0 {
		return // a part of a site
	}
	path := []string{"waves"}
	if r.strategy != nil {
		path = []string{"strategy", "order"}
		c.In("strategy", func() { r.checkBudget(c, mine) })
	}
	for i, w := range r.waves {
		c.Within(append(path, shape.Nth(i)), func() {
			if what, hint := w.nobody(mine); what != "" {
				c.Errorf(w.At, "nobody", hint, "no node of the rollout %s", what)
			}
		})
		if w.Each != "" {
			values := map[string]int{}
			for _, n := range mine {
				if v, ok := n.Label(w.Each); ok {
					values[v]++
					largest = max(largest, values[v])
				}
			}
		}
	}
	if r.strategy != nil {
		return // its budget bounds how many move at once
	}
	for _, w := range r.Divide(nodes) {
		size, at, what := len(w.Nodes), r.at, "the nodes that are in no wave"
		if w.term < len(r.waves) {
			term := r.waves[w.term]
			if term.Rest || term.Each != "" {
				continue
			}
			at, what = term.At, "the nodes of wave "+w.Name
		}
		if size > max(fewNodes, largest) && 4*size > len(nodes) {
			c.In("waves", func() {
				c.Errorf(at, "large-wave", "write rest: true where all of them are meant at once; smaller numbers and each make smaller waves",
					"%s are %d of %d at once", what, size, len(nodes))
			})
		}
	}
}

// nobody returns what a wave names that none of the nodes has, and a hint.
func (w wave) nobody(nodes []inventory.Node) (what, hint string) {
	for _, pattern := range w.Hosts {
		if !slices.ContainsFunc(nodes, Set{hosts: []string{pattern}}.Has) {
			return "has the name " + pattern, inventory.DidYouMean(pattern, nodes)
		}
	}
	if w.set != nil && !slices.ContainsFunc(nodes, w.set.Has) {
		return "belongs to the NodeSet " + w.set.Name, w.set.whyNobody(nodes)
	}
	labelled := func(n inventory.Node) bool { _, ok := n.Label(w.Each); return ok }
	if w.Each != "" && !slices.ContainsFunc(nodes, labelled) {
		return "has the label " + w.Each, inventory.LabelHint(w.Each, "", nodes)
	}
	return "", ""
}
