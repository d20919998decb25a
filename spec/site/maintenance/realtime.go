// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/conflict"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Realtime is an operation of type realtime: settings that hold, in windows or always.
type Realtime struct {
	Name    string       // maintenance/operation
	Windows []string     // outside of which drift is only reported
	Conf    *tree.Value  // settings by kind, as in the conf of a site
	Budget  *spec.Budget // of each setting
	From    string       // its template
	At      report.Pos
	sets    []Set
}

// confDoc is the settings of an operation. Keys of these kinds can be told from each
// other when a site is published; those of others cannot.
type confDoc struct{ V *tree.Value }

// Decode reads the kinds; what they say is compiled by package site.
func (d *confDoc) Decode(c *shape.Checker, v *tree.Value) {
	c.DecodeFields(v, module.RealtimeFields())
	d.V = v
}

// Schema returns the schema of the kinds.
func (*confDoc) Schema(g *shape.Generator) any { return g.Fields("settings", module.RealtimeFields()) }

// Has reports whether it is about a node.
func (r *Realtime) Has(n inventory.Node) bool { return nodeMaintenance{sets: r.sets}.has(n) }

// Realtime returns all operations of that type.
func (m Maintenance) Realtime() (out []Realtime) {
	for _, p := range m.nodes {
		out = append(out, p.realtime...)
	}
	return out
}

// checkRealtime checks all but the settings, which are the business of package site.
func (d operationDoc) checkRealtime(c *shape.Checker, m *nodeMaintenance, from string) Realtime {
	r := Realtime{Name: m.name + "/" + d.Name.S, Conf: d.Conf.V, From: from, At: d.Name.At, sets: m.sets}
	for _, f := range []struct {
		name string
		at   report.Pos
		set  bool
	}{
		{"exec", at(d.Exec, func(e *commandDoc) report.Pos { return e.At }), d.Exec != nil}, {"check", at(d.Check, func(e *commandDoc) report.Pos { return e.At }), d.Check != nil},
		{"schedule", at(d.Schedule, func(s *scheduleDoc) report.Pos { return s.At }), d.Schedule != nil}, {"retry", at(d.Retry, func(r *retryDoc) report.Pos { return r.At }), d.Retry != nil},
		{"generation", d.Generation.At, d.Generation.Set()}, {"disruptive", d.Disruptive.At, d.Disruptive.On}, {"reboots", d.Reboots.At, d.Reboots.On},
	} {
		if f.set {
			c.Errorf(f.at, "operation", "", "an operation of type realtime has no %s", f.name)
		}
	}
	if d.Outside.Set() && len(m.windows) == 0 {
		c.Errorf(d.Outside.At, "window", "name windows, or remove it", "%s has no windows", d.Name.S)
	}
	r.Budget = conflict.Check(c, d.V.Get("onConflict"), d.OnConflict)
	if d.Outside.S != "enforce" {
		for _, w := range m.windows {
			r.Windows = append(r.Windows, w.Name)
		}
	}
	if d.Conf.V == nil || d.Conf.V.Kind != tree.Mapping || len(d.Conf.V.Fields) == 0 {
		c.Errorf(c.At(d.V), "operation", "as in conf: {sysctl: {vm.swappiness: \"1\"}}", "an operation of type realtime says what holds, by conf")
		r.Conf = nil
		return r
	}
	return r
}

// at is where something was written that may be absent.
func at[T any](v *T, pos func(*T) report.Pos) report.Pos {
	if v == nil {
		return report.Pos{}
	}
	return pos(v)
}
