// SPDX-License-Identifier: Apache-2.0

// Package maintenance reads what a site's nodes do over time, when, and which of them:
// the documents NodeMaintenance, OperationTemplate, MaintenanceWindow and NodeSet.
//
// A document of its own kind stands beside the Site, in the same file or in one that
// the Site includes. Names are unique among the documents of a kind. Everything is
// resolved when a site is published: a node sees intervals of UTC and its own
// settings, neither rules nor names of other nodes.
package maintenance

import (
	"cmp"
	"slices"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Docs are the documents of this package as they were written: a field a kind.
type Docs struct {
	Windows   []WindowDoc
	Sets      []NodeSetDoc
	Nodes     []shape.Raw[NodeMaintenanceDoc] // decoded when all templates are known
	Templates []shape.Raw[TemplateDoc]
}

// readNodes decodes a NodeMaintenance whose templates are expanded, and notes from which
// one each of its operations is.
func readNodes(c *shape.Checker, v *tree.Value, known templates) NodeMaintenanceDoc {
	from := map[string]string{}
	read := func(v *tree.Value) NodeMaintenanceDoc {
		doc := shape.Read[NodeMaintenanceDoc](c, v)
		doc.from = from
		return doc
	}
	body, list := v.Get("spec"), v.Get("spec").Get("operations")
	if list == nil || list.Kind != tree.Sequence {
		return read(v)
	}
	whole := *list
	whole.List = nil
	c.In("spec", func() {
		shape.Each(c, "operations", list.List, func(_ int, o *tree.Value) {
			if o.Kind != tree.Mapping {
				whole.List = append(whole.List, o)
			} else if o, at := known.expand(c, o); o != nil {
				whole.List = append(whole.List, o)
				if name := o.Get("name"); name != nil {
					from[name.Text] = at
				}
			}
		})
	})
	return read(v.With("spec", body.With("operations", &whole)))
}

// HeadDoc holds the head of every document, but for its kind.
type HeadDoc struct {
	APIVersion shape.Text `site:"apiVersion,required" enum:"caisson.dev/v1alpha1"`
	Metadata   nameDoc    `site:"metadata,required"`
}

func (d HeadDoc) name() shape.Text { return d.Metadata.Name }

type nameDoc struct {
	Name shape.Text `site:"name,required" doc:"name by which other documents refer to this one"`
}

// Maintenance holds the content of these documents of a site, checked.
type Maintenance struct {
	Windows []calendar.Window // by name
	Sets    []Set             // by name
	nodes   []nodeMaintenance
	swaps   []Swap // as written
}

// Check makes values of documents, and reports what is wrong with them.
func Check(c *shape.Checker, d Docs) Maintenance {
	var m Maintenance
	CheckEach(c, d.Windows, func(doc WindowDoc) {
		name := doc.Metadata.Name
		c.Refuse(name.S == always, name.At, "duplicate-name", "", "always is the window that is always open")
		m.Windows = append(m.Windows, doc.Spec.Check(c, name))
	})
	CheckEach(c, d.Sets, func(doc NodeSetDoc) { m.Sets = append(m.Sets, doc.check(c)) })
	slices.SortFunc(m.Windows, func(a, b calendar.Window) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Sets, func(a, b Set) int { return cmp.Compare(a.Name, b.Name) })
	var known templates
	for _, v := range d.Templates {
		if t := readTemplate(c, v.V); t != nil {
			t.digest = digest.Of(v.V.Sorted().AppendText(nil)) // an object of Kubernetes keeps no order of keys
			known.add(c, t)
		}
	}
	nodes := plain.Each(d.Nodes, func(v shape.Raw[NodeMaintenanceDoc]) NodeMaintenanceDoc { return readNodes(c, v.V, known) })
	CheckEach(c, nodes, func(doc NodeMaintenanceDoc) { m.nodes = append(m.nodes, doc.check(c, &m)) })
	return m
}

// CheckEach has every document checked whose name can be one, and is the first of its
// kind.
func CheckEach[D interface{ name() shape.Text }](c *shape.Checker, docs []D, check func(D)) {
	seen := names{}
	for _, doc := range docs {
		if seen.add(c, shape.Kind[D](), doc.name()) {
			c.In(doc.name().S, func() { check(doc) })
		}
	}
}

// names are where the documents of one kind were named.
type names map[string]report.Pos

// add takes a document's name, and reports whether it can be one.
func (n names) add(c *shape.Checker, kind string, name shape.Text) bool {
	if !name.Set() {
		return false // said already
	}
	if first, dup := n[name.S]; dup {
		c.Errorf(name.At, "duplicate-name", "", "the %s %s is given already, at %s", kind, name.S, first)
		return false
	}
	n[name.S] = name.At
	return c.Valid(name.At, rules.ID(name.S))
}

// WindowDoc is a MaintenanceWindow as it is written.
type WindowDoc struct {
	HeadDoc
	Kind shape.Text             `site:"kind,required" enum:"MaintenanceWindow"`
	Spec calendar.WindowSpecDoc `site:"spec,required"`
}

func windowName(w calendar.Window) string { return w.Name }

// NodeMaintenanceDoc is a NodeMaintenance as it is written.
type NodeMaintenanceDoc struct {
	HeadDoc
	Kind shape.Text             `site:"kind,required" enum:"NodeMaintenance"`
	Spec nodeMaintenanceSpecDoc `site:"spec,required"`

	from map[string]string // templates of its operations, by the operation's name
}

type nodeMaintenanceSpecDoc struct {
	Nodes   []shape.Text `site:"nodes" doc:"names of NodeSets; every node when absent"`
	Windows []shape.Text `site:"windows" doc:"names of MaintenanceWindows, or always"`
	turnDoc
	Operations []operationDoc `site:"operations,required"`
}

// always is the name of a window that is always open.
const always = "always"

// nodeMaintenance holds the operations of some nodes, and their times.
type nodeMaintenance struct {
	name       string
	sets       Sets
	windows    []calendar.Window
	operations []operation
	realtime   []Realtime
	turn       turn // of those that disturb
}

func (d NodeMaintenanceDoc) check(c *shape.Checker, m *Maintenance) nodeMaintenance {
	out := nodeMaintenance{name: d.Metadata.Name.S}
	c.In("nodes", func() { out.sets = m.PickSets(c, d.Spec.Nodes) })
	var open bool
	out.windows, open = m.pickWindows(c, d.Spec.Windows)
	out.turn = d.Spec.turnDoc.check(c, out.windows)
	if disturbs := slices.ContainsFunc(d.Spec.Operations, operationDoc.disturbs); out.turn.is() && !disturbs && len(d.Spec.Operations) > 0 {
		c.Errorf(c.At(d.Spec.Operations[0].V), "order", "say disruptive: true where one disturbs its node",
			"when, slot, drain and soak are of operations that disturb, and none here does")
	}
	seen := names{}
	shape.Each(c, "operations", d.Spec.Operations, func(_ int, o operationDoc) {
		switch {
		case !seen.add(c, "operation", o.Name):
		case o.Type.S == spec.RealtimeType:
			out.realtime = append(out.realtime, o.checkRealtime(c, &out, d.from[o.Name.S]))
		default:
			done := o.check(c, out.name, out.windows, open)
			done.From = d.from[o.Name.S]
			out.operations = append(out.operations, done)
		}
	})
	return out
}

// pickWindows returns the windows that are named; open is true where that is always.
func (m Maintenance) pickWindows(c *shape.Checker, list []shape.Text) (windows []calendar.Window, open bool) {
	c.In("windows", func() {
		if open = slices.ContainsFunc(list, func(t shape.Text) bool { return t.S == always }); open {
			c.Refuse(len(list) > 1, list[0].At, "window", "", "always is every window: write it alone")
			return
		}
		windows = pick[WindowDoc](c, list, m.Windows, windowName)
	})
	return windows, open
}

// PickSets returns the sets that a document of another kind names, nil for every
// node, and reports names that there are not.
func (m Maintenance) PickSets(c *shape.Checker, list []shape.Text) Sets {
	return pick[NodeSetDoc](c, list, m.Sets, func(s Set) string { return s.Name })
}

// pick returns the values that documents of type D name, and reports names that there
// are not.
func pick[D, T any](c *shape.Checker, list []shape.Text, all []T, name func(T) string) []T {
	kind := shape.Kind[D]()
	var out []T
	for i, t := range list {
		at := slices.IndexFunc(all, func(v T) bool { return name(v) == t.S })
		if at < 0 {
			known := plain.Each(all, name)
			hint := report.DidYouMean(t.S, known)
			if len(known) == 0 {
				hint = "write a document of kind: " + kind + " with metadata: {name: " + t.S + "}"
				if kind == shape.Kind[WindowDoc]() {
					hint += ", or windows: [always]"
				}
			}
			c.In(shape.Nth(i), func() {
				c.Errorf(t.At, "unknown-name", hint, "there is no %s %q", kind, t.S)
			})
			continue
		}
		out = append(out, all[at])
	}
	return out
}
