// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"cmp"
	"reflect"
	"slices"

	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Kinds are the documents of this package.
var Kinds = []shape.Document{
	{Kind: "MaintenanceWindow", Type: reflect.TypeFor[WindowDoc](), Whole: true},
	{Kind: "NodeSet", Type: reflect.TypeFor[NodeSetDoc](), Whole: true},
	{Kind: "NodeMaintenance", Type: reflect.TypeFor[NodeMaintenanceDoc](), Whole: true},
	{Kind: "OperationTemplate", Type: reflect.TypeFor[TemplateDoc](), Whole: true},
	{Kind: "Rollout", Type: reflect.TypeFor[RolloutDoc](), Whole: true},
}

// Docs are the documents of this package as they were written.
type Docs struct {
	windows   []WindowDoc
	sets      []NodeSetDoc
	nodes     []*tree.Value // decoded when all templates are known
	templates []*tree.Value
	rollouts  []RolloutDoc
}

// Add reads one document of one of [Kinds].
func (d *Docs) Add(c *shape.Checker, v *tree.Value) {
	switch v.Get("kind").Text {
	case "MaintenanceWindow":
		d.windows = append(d.windows, decode[WindowDoc](c, v))
	case "NodeMaintenance":
		d.nodes = append(d.nodes, v)
	case "Rollout":
		d.rollouts = append(d.rollouts, decode[RolloutDoc](c, v))
	case "NodeSet":
		d.sets = append(d.sets, decode[NodeSetDoc](c, v))
	case "OperationTemplate":
		d.templates = append(d.templates, v)
	}
}

// Empty reports whether there are none.
func (d *Docs) Empty() bool {
	return len(d.windows)+len(d.sets)+len(d.nodes)+len(d.templates)+len(d.rollouts) == 0
}

// readNodes decodes a NodeMaintenance whose templates are expanded, and says from which
// one each of its operations is.
func readNodes(c *shape.Checker, v *tree.Value, known templates) (doc NodeMaintenanceDoc, from map[string]string) {
	from = map[string]string{}
	body, list := v.Get("spec"), v.Get("spec").Get("operations")
	if list == nil || list.Kind != tree.Sequence {
		return decode[NodeMaintenanceDoc](c, v), from
	}
	whole := *list
	whole.List = nil
	c.In("spec", func() {
		c.In("operations", func() {
			for i, o := range list.List {
				c.In(shape.Nth(i), func() {
					if o.Kind != tree.Mapping {
						whole.List = append(whole.List, o)
					} else if o, at := known.expand(c, o); o != nil {
						whole.List = append(whole.List, o)
						if name := o.Get("name"); name != nil {
							from[name.Text] = at
						}
					}
				})
			}
		})
	})
	return decode[NodeMaintenanceDoc](c, v.With("spec", body.With("operations", &whole))), from
}

func decode[T any](c *shape.Checker, v *tree.Value) T {
	var doc T
	c.Decode(v, &doc)
	return doc
}

// HeadDoc is what every document begins with, but for its kind.
type HeadDoc struct {
	APIVersion shape.Text `site:"apiVersion,required" enum:"caisson.dev/v1alpha1"`
	Metadata   nameDoc    `site:"metadata,required"`
}

type nameDoc struct {
	Name shape.Text `site:"name,required" doc:"what other documents call it"`
}

// Maintenance is what a site says in these documents, checked.
type Maintenance struct {
	Windows []Window // by name
	Sets    []Set    // by name
	nodes   []nodeMaintenance
	swaps   []Swap // as written

	Rollouts []Rollout // as written
}

// Check makes values of documents, and reports what is wrong with them.
func Check(c *shape.Checker, d Docs) Maintenance {
	var m Maintenance
	windows, sets := names{}, names{}
	for _, doc := range d.windows {
		if windows.add(c, "MaintenanceWindow", doc.Metadata.Name) {
			c.In(doc.Metadata.Name.S, func() { m.Windows = append(m.Windows, doc.check(c)) })
		}
	}
	for _, doc := range d.sets {
		if sets.add(c, "NodeSet", doc.Metadata.Name) {
			c.In(doc.Metadata.Name.S, func() { m.Sets = append(m.Sets, doc.check(c)) })
		}
	}
	slices.SortFunc(m.Windows, func(a, b Window) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(m.Sets, func(a, b Set) int { return cmp.Compare(a.Name, b.Name) })
	var known templates
	for _, v := range d.templates {
		if t := readTemplate(c, v); t != nil {
			known.add(c, t)
		}
	}
	docs := names{}
	for _, v := range d.nodes {
		doc, from := readNodes(c, v, known)
		if docs.add(c, "NodeMaintenance", doc.Metadata.Name) {
			c.In(doc.Metadata.Name.S, func() { m.nodes = append(m.nodes, doc.check(c, &m, from)) })
		}
	}
	rollouts := names{}
	for _, doc := range d.rollouts {
		if rollouts.add(c, "Rollout", doc.Metadata.Name) {
			c.In(doc.Metadata.Name.S, func() { m.Rollouts = append(m.Rollouts, doc.check(c, &m)) })
		}
	}
	return m
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
	if name.S == always {
		c.Errorf(name.At, "duplicate-name", "", "always is the window that is always open")
		return false
	}
	return c.Valid(name.At, rules.ID(name.S))
}
