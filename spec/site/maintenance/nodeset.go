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

// Definition says all of which nodes are meant, for comparison.
func (s Set) Definition() string {
	return fmt.Sprintf("set %q labels %q hosts %q without labels %q hosts %q", s.Name, s.labels, s.hosts, s.excluded, s.not)
}

func (d NodeSetDoc) check(c *shape.Checker) Set {
	s := Set{Name: d.Metadata.Name.S, at: d.Metadata.Name.At, labels: labels(d.Spec.Match.Labels), excluded: labels(d.Spec.Exclude.Labels)}
	c.In("match", func() { s.hosts = Patterns(c, d.Spec.Match.V, d.Spec.Match.Hosts) })
	c.In("exclude", func() { s.not = Patterns(c, d.Spec.Exclude.V, d.Spec.Exclude.Hosts) })
	return s
}

func labels(m shape.Map[shape.Text]) []label {
	return plain.Each(m, func(e shape.Entry[shape.Text]) label { return label{e.Key.S, e.Val.S} })
}

// Patterns returns those of the hosts of v that can be patterns.
func Patterns(c *shape.Checker, v *tree.Value, hosts []string) []string {
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
	return !slices.ContainsFunc(s.labels, func(l label) bool { return !has(l) }) &&
		(len(s.hosts) == 0 || Named(s.hosts, n)) && !slices.ContainsFunc(s.excluded, has) && !Named(s.not, n)
}

// Named reports whether a node has a name of one of these patterns.
func Named(patterns []string, n inventory.Node) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		ok, err := path.Match(pattern, n.Name)
		return ok && err == nil
	})
}

// warnOfNobody reports sets that no node belongs to: what names one has no effect.
func warnOfNobody(c *shape.Checker, sets []Set, nodes []inventory.Node) {
	for _, s := range sets {
		if len(nodes) == 0 || slices.ContainsFunc(nodes, s.Has) {
			continue
		}
		c.In(s.Name, func() {
			c.Warnf(s.at, "nobody", s.WhyNobody(nodes), "no node belongs to the NodeSet %s: what is for it has no effect", s.Name)
		})
	}
}

// WhyNobody is a hint: the first label or pattern that no node has.
func (s Set) WhyNobody(nodes []inventory.Node) string {
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
