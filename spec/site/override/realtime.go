// SPDX-License-Identifier: Apache-2.0

package override

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Realtime are a site's operations of that type with their settings.
type Realtime []managing

// managing is one of them.
type managing struct {
	maintenance.Realtime
	items spec.Items
	keys  []spec.ItemKey
	at    map[spec.ItemKey]report.Pos
}

// CompileRealtime compiles the settings that operations manage, and reports what two manage on one
// of these nodes; fragments returns what else applies to a node.
func CompileRealtime(c *module.Checker, operations []maintenance.Realtime, nodes []inventory.Node,
	fragments func(inventory.Node) []*module.Fragment) Realtime {
	var all Realtime
	for _, o := range operations {
		r := managing{Realtime: o, at: map[spec.ItemKey]report.Pos{}}
		f := module.Fragment{Owns: map[string]report.Pos{}}
		c.Within(append(strings.Split(o.Name, "/"), "conf"), func() {
			for i := range module.All {
				m := &module.All[i]
				if v := o.Conf.Get(m.Name); v != nil && v.Kind != tree.Null {
					c.In(m.Name, func() {
						if m.Normal != nil {
							v = m.Normal(c.Checker, v)
							r.Conf = r.Conf.With(m.Name, v)
						}
						r.note(m.Name, v)
						m.Compile(c, v, &f)
					})
				}
			}
			for i, n := range f.Items.NICs {
				written := r.at[spec.ItemKey{Item: "nics", Key: n.ID}]
				f.Items.NICs[i].ID = strings.ReplaceAll(o.Name, "/", "-") + "-" + n.ID // one template may be used twice
				r.at[spec.ItemKey{Item: "nics", Key: f.Items.NICs[i].ID}] = written
				c.Refuse(n.Match.Name == "", written, "operation", "match: {name: …}, or write it below conf of the site",
					"an operation manages interfaces by name, and %s is not", n.ID)
			}
		})
		r.items, r.keys = f.Items, module.Keys(&f.Items)
		all = append(all, r)
	}
	all.twiceManaged(c, nodes, fragments)
	return all
}

// note keeps where settings were written.
func (r *managing) note(kind string, v *tree.Value) {
	for _, f := range v.Fields {
		r.at[spec.ItemKey{Item: kind, Key: rules.PolicyKey(kind, strings.TrimPrefix(f.Key, "-"))}] = f.At
	}
}

// twiceManaged reports settings that two operations, or an operation and the site's
// conf or policy, manage on one node: each once.
func (all Realtime) twiceManaged(c *module.Checker, nodes []inventory.Node, fragments func(inventory.Node) []*module.Fragment) {
	said := map[spec.ItemKey]bool{}
	for _, n := range nodes {
		owners := map[spec.ItemKey]string{}
		for i := range all {
			r := &all[i]
			if !r.Has(n) {
				continue
			}
			if len(owners) == 0 {
				owners = managed(fragments(n))
			}
			for _, k := range append(slices.Clone(r.keys), r.names()...) {
				if by := owners[k]; by != "" && !said[k] {
					said[k] = true
					c.Within(strings.Split(r.Name, "/"), func() {
						c.Errorf(r.place(k), "two-owners", "keep one of the two", "%s %s is managed by %s, too, on %s", k.Item,
							rules.PolicyName(k.Item, k.Key), by, n.Name)
					})
				}
				owners[k] = r.Name
			}
		}
	}
}

// names are those of entries that must be unique on a node.
func (r *managing) names() []spec.ItemKey {
	return plain.Each(r.items.NICs, func(n spec.NIC) spec.ItemKey { return spec.ItemKey{Item: "nics", Key: n.ID} })
}

// place is where a setting was written: that of its entry where it has none of its own,
// and that of the operation where a template in another file has it.
func (r *managing) place(k spec.ItemKey) report.Pos {
	if at := r.written(k); at.Src == r.At.Src {
		return at
	}
	return r.At
}

func (r *managing) written(k spec.ItemKey) report.Pos {
	if at, ok := r.at[k]; ok {
		return at
	}
	name, _, _ := strings.Cut(k.Key, "/")
	for _, n := range r.items.NICs {
		if k.Item == "nics" && n.Match.Name == name {
			return r.at[spec.ItemKey{Item: "nics", Key: n.ID}]
		}
	}
	return r.At
}

// managed returns what the site's conf says of a node, and its policies.
func managed(fragments []*module.Fragment) map[spec.ItemKey]string {
	owners := map[spec.ItemKey]string{}
	for _, f := range fragments {
		for _, k := range append(module.Keys(&f.Items), (&managing{items: f.Items}).names()...) {
			owners[k] = "conf"
		}
		if f.Machine.Agent != nil {
			for _, e := range f.Machine.Agent.Enforce {
				owners[spec.ItemKey{Item: e.Item, Key: e.Key}] = "machine.agent.policy"
			}
		}
	}
	return owners
}

// AddTo adds what operations hold on a node to its items, and reports whether there is any.
func (all Realtime) AddTo(o *spec.Overlay, n inventory.Node) (any bool) {
	for i := range all {
		r := &all[i]
		if !r.Has(n) {
			continue
		}
		any = true
		o.Items.Sysctl = slices.Concat(o.Items.Sysctl, r.items.Sysctl)
		o.Items.Sysfs = slices.Concat(o.Items.Sysfs, r.items.Sysfs)
		o.Items.NICs = slices.Concat(o.Items.NICs, r.items.NICs)
		o.Maintenance.Realtime = append(o.Maintenance.Realtime,
			spec.Realtime{Name: r.Name, Windows: r.Windows, Keys: r.keys, Budget: r.Budget, From: r.From})
	}
	if any {
		slices.SortFunc(o.Items.Sysctl, func(a, b spec.Sysctl) int { return strings.Compare(a.Key, b.Key) })
		slices.SortFunc(o.Items.Sysfs, func(a, b spec.Sysfs) int { return strings.Compare(a.Path, b.Path) })
		slices.SortFunc(o.Items.NICs, func(a, b spec.NIC) int { return strings.Compare(a.ID, b.ID) })
		slices.SortFunc(o.Maintenance.Realtime, func(a, b spec.Realtime) int { return strings.Compare(a.Name, b.Name) })
	}
	return any
}
