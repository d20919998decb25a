// SPDX-License-Identifier: Apache-2.0

// Package override says what a node gets of a module: the base, or the base with
// exactly one override on top, never two.
//
// A host entry of the node's name goes before every label entry; of the label
// entries that fit, the last one in the file counts alone. Entries that can have
// no effect are reported. Each choice is a [Target]: nodes with the same target
// share what it compiles to. Package tree does the merging, package module the
// compiling; a [Part] does not know what else a node gets. [Parts] are all of them, and say what
// two of them, or one and an operation, cannot both do.
package override

import (
	"iter"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// StanzaDoc holds the overrides of one module; T holds the fields that an entry may change.
type StanzaDoc[T any] struct {
	Hosts  []hostDoc[T]  `site:"hosts" doc:"entries that apply to the one node of that name"`
	Labels []labelDoc[T] `site:"labels" doc:"entries that apply to nodes by label; the last that fits wins"`
}

type hostDoc[T any] struct {
	Name shape.Text   `site:"name,required" doc:"the node's name, byte for byte"`
	Conf shape.Raw[T] `site:"conf" doc:"laid over conf"`
	At   report.Pos
}

type labelDoc[T any] struct {
	Label selectorDoc  `site:"label,required" as:"{key: role, values: [db]}"`
	Conf  shape.Raw[T] `site:"conf" doc:"laid over conf"`
	At    report.Pos
}

type selectorDoc struct {
	Key    shape.Text   `site:"key,required"`
	Values []shape.Text `site:"values,required" as:"[db]" doc:"values of the label, any of these"`
}

// Example shows a label as it is written elsewhere.
func (*selectorDoc) Example(instead *tree.Value) string {
	key, value := "role", "db"
	if w := shape.Line(instead); len(w) > 0 {
		if k, v, ok := strings.Cut(w[0], "="); ok {
			key, value = k, v
		}
	}
	if len(instead.Fields) == 1 && instead.Fields[0].Val.Kind == tree.Scalar {
		key, value = instead.Fields[0].Key, instead.Fields[0].Val.Text
	}
	return "{key: " + shape.Quoted(key) + ", values: [" + shape.Quoted(value) + "]}"
}

// target is one of the configurations of a module: the base, or the base with
// one override on top.
type target struct {
	Name   string // "default", "host:NAME" or "label:KEY"
	At     report.Pos
	Over   *tree.Value // laid over the base; nil for none
	Label  string
	Values []string
	Frag   *module.Fragment // compiled, for the targets that nodes share
}

// Part is one module of a site with its targets.
type Part struct {
	*module.Module
	Base     *tree.Value
	Def      *target
	Hosts    map[string]*target
	Labels   []*target
	Selector [2]string // label and value of the nodes that run the module at all
	Off      bool
}

// Targets lists those that say something: the default, labels, hosts by name.
func (p *Part) Targets() (list []*target) {
	if p.Base != nil {
		list = append(list, p.Def)
	}
	list = append(list, p.Labels...)
	for _, name := range slices.Sorted(maps.Keys(p.Hosts)) {
		list = append(list, p.Hosts[name])
	}
	return list
}

// New returns a part without targets.
func New(m *module.Module) *Part {
	return &Part{Module: m, Hosts: map[string]*target{}, Def: &target{Name: "default"}}
}

// OffTarget is that of a node on which a module is off.
var OffTarget = &target{Name: "off", Frag: &module.Fragment{}}

// Choose picks the one target of a node: its host entry, else the last label
// entry that fits, else the default.
func (p *Part) Choose(name string, label func(string) (string, bool)) *target {
	if p.Off {
		return OffTarget
	}
	if p.Selector[0] != "" {
		if v, ok := label(p.Selector[0]); !ok || v != p.Selector[1] {
			return OffTarget
		}
	}
	if t, ok := p.Hosts[name]; ok {
		return t
	}
	for _, t := range slices.Backward(p.Labels) {
		if v, ok := label(t.Label); ok && slices.Contains(t.Values, v) {
			return t
		}
	}
	return p.Def
}

// Effective returns the module's configuration for a target.
func (p *Part) Effective(t *target, dropped func(*tree.Value)) *tree.Value {
	if t == OffTarget {
		return nil
	}
	return tree.MergeOverride(p.Base, t.Over, dropped)
}

// AddStanza takes a module's overrides and says what in them cannot have effect.
func AddStanza[T any](p *Part, c *shape.Checker, s StanzaDoc[T]) {
	shape.Each(c, "hosts", s.Hosts, func(_ int, h hostDoc[T]) {
		if h.Name.S == "" {
			return
		}
		if first, dup := p.Hosts[h.Name.S]; dup {
			c.Errorf(h.Name.At, "duplicate-override", "merge the two entries", "host %q has an entry already, at %s", h.Name.S, first.At)
			return
		}
		p.Hosts[h.Name.S] = &target{Name: "host:" + h.Name.S, At: h.Name.At, Over: p.body(c, h.Conf.V)}
	})
	shape.Each(c, "labels", s.Labels, func(_ int, l labelDoc[T]) {
		p.Labels = append(p.Labels, &target{Name: "label:" + l.Label.Key.S, At: l.At, Label: l.Label.Key.S, Over: p.body(c, l.Conf.V),
			Values: plain.Each(l.Label.Values, func(v shape.Text) string { return v.S })})
	})
	p.deadLabels(c)
}

// deadLabels warns of entries whose every value a later entry takes away.
func (p *Part) deadLabels(c *shape.Checker) {
	for i, t := range p.Labels {
		taken := map[string]bool{}
		var by *target
		for _, later := range p.Labels[i+1:] {
			if later.Label == t.Label {
				for _, v := range later.Values {
					taken[v] = true
				}
				by = later
			}
		}
		if by != nil && len(t.Values) > 0 && !slices.ContainsFunc(t.Values, func(v string) bool { return !taken[v] }) {
			c.Warnf(t.At, "dead-override", "only the last entry that fits a node applies",
				"the entry has no effect: label %s=%s is taken by the entry at %s",
				t.Label, strings.Join(t.Values, "|"), by.At)
		}
	}
}

// body is the part of an override's conf that the module reads.
func (p *Part) body(c *shape.Checker, conf *tree.Value) *tree.Value {
	if conf == nil || conf.Kind == tree.Null || !c.Want(conf, tree.Mapping) {
		return nil
	}
	if p.Name == module.Machine {
		return conf
	}
	for _, f := range conf.Fields {
		switch {
		case f.Key == p.Name, f.Key == "log_colors", f.Key == "extra_verbose", f.Key == "chroot_mnt_path":
		case slices.Contains(module.Names(), f.Key):
			c.Warnf(f.At, "dead-override", "move it to the overrides of "+f.Key, "%s has no effect in an override of %s", f.Key, p.Name)
		case plain.Nearest(f.Key, slices.Values(module.Names())) == "":
			c.UnknownBelow(f, p.Name)
		default:
			c.Unknown(f, module.Names())
		}
	}
	return conf.Get(p.Name)
}

// Where is the part of a document that the module is in.
func (p *Part) Where() []string {
	if p.Name == module.Machine {
		return []string{module.Machine}
	}
	return []string{"conf", p.Name}
}

// CompileTarget compiles a module for one target, and reports what is wrong with it.
func (p *Part) CompileTarget(c *module.Checker, t *target) *module.Fragment {
	f := &module.Fragment{Owns: map[string]report.Pos{}}
	if t == OffTarget {
		return f
	}
	v := p.Effective(t, func(over *tree.Value) {
		if over.Append {
			c.Errorf(over.At, "append", "lists by group take another group instead", "nothing but a list can be appended to")
			return
		}
		report := c.Errorf
		if over.At.Src != nil && over.At.Src.Lenient {
			report = c.Warnf
		}
		c.Within(keysTo(t.Over, over), func() {
			report(over.At, "dead-override", "give the same kind of value as the base", "a map cannot replace a value or a list: the base stays")
		})
	})
	p.Compile(c, v, f)
	return f
}

// keysTo returns the keys that lead from a map to a value in it.
func keysTo(from, to *tree.Value) []string {
	for _, f := range from.Fields {
		if f.Val == to {
			return []string{f.Key}
		}
		if keys := keysTo(f.Val, to); keys != nil {
			return append([]string{f.Key}, keys...)
		}
	}
	return nil
}

// Owned returns the paths that the part's targets write, and where they were asked
// for. One that several targets write comes as often.
func (p *Part) Owned() iter.Seq2[string, report.Pos] {
	return func(yield func(string, report.Pos) bool) {
		seen := map[*module.Fragment]bool{nil: true} // targets share fragments
		for _, t := range slices.AppendSeq(append([]*target{p.Def}, p.Labels...), maps.Values(p.Hosts)) {
			if seen[t.Frag] {
				continue
			}
			seen[t.Frag] = true
			for owned, at := range t.Frag.Owns {
				if !yield(owned, at) {
					return
				}
			}
		}
	}
}

// Always reports whether the part writes a path whatever it is asked for.
func (p *Part) Always(name string) bool {
	return slices.ContainsFunc(p.Paths, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// Above returns the target of a mount of this part that lies above a path, or "".
func (p *Part) Above(name string) string {
	if p.Name != "mounts" {
		return ""
	}
	for target := range p.Owned() {
		if target != name && target != "/" && rules.Within(name, target) {
			return target
		}
	}
	return ""
}
