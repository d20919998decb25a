// SPDX-License-Identifier: Apache-2.0

package site

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// stanzaDoc is the overrides of one module; T is what an entry may change.
type stanzaDoc[T any] struct {
	Hosts  []hostDoc[T]  `site:"hosts" doc:"entries that apply to the one node of that name"`
	Labels []labelDoc[T] `site:"labels" doc:"entries that apply to nodes by label; the last that fits wins"`
}

type hostDoc[T any] struct {
	Name shape.Text   `site:"name,required" doc:"the node's name, byte for byte"`
	Conf shape.Raw[T] `site:"conf" doc:"laid over conf"`
	At   report.Pos
}

type labelDoc[T any] struct {
	Label selectorDoc  `site:"label,required"`
	Conf  shape.Raw[T] `site:"conf" doc:"laid over conf"`
	At    report.Pos
}

type selectorDoc struct {
	Key    shape.Text   `site:"key,required"`
	Values []shape.Text `site:"values,required" doc:"any of these"`
}

// target is one of the configurations of a module: the base, or the base with
// one override on top.
type target struct {
	name   string // "default", "host:NAME" or "label:KEY"
	at     report.Pos
	over   *tree.Value // laid over the base; nil for none
	label  string
	values []string
	frag   *module.Fragment // compiled, for the targets that nodes share
}

// part is one module of a site with its targets.
type part struct {
	*module.Module
	base     *tree.Value
	def      *target
	hosts    map[string]*target
	labels   []*target
	selector [2]string // label and value of the nodes that run the module at all
	off      bool
}

// offTarget is that of a node on which a module is off.
var offTarget = &target{name: "off", frag: &module.Fragment{}}

// choose picks the one target of a node: its host entry, else the last label
// entry that fits, else the default.
func (p *part) choose(name string, label func(string) (string, bool)) *target {
	if p.off {
		return offTarget
	}
	if p.selector[0] != "" {
		if v, ok := label(p.selector[0]); !ok || v != p.selector[1] {
			return offTarget
		}
	}
	if t, ok := p.hosts[name]; ok {
		return t
	}
	for _, t := range slices.Backward(p.labels) {
		if v, ok := label(t.label); ok && slices.Contains(t.values, v) {
			return t
		}
	}
	return p.def
}

// effective is the module's configuration for a target.
func (p *part) effective(t *target, dropped func(*tree.Value)) *tree.Value {
	if t == offTarget {
		return nil
	}
	return tree.MergeOverride(p.base, t.over, dropped)
}

// addStanza takes a module's overrides and says what in them cannot have effect.
func addStanza[T any](p *part, c *shape.Checker, s stanzaDoc[T]) {
	for i, h := range s.Hosts {
		c.Within([]string{"hosts", shape.Nth(i)}, func() {
			if h.Name.S == "" {
				return
			}
			if first, dup := p.hosts[h.Name.S]; dup {
				c.Errorf(h.Name.At, "duplicate-override", "merge the two entries", "host %q has an entry already, at %s", h.Name.S, first.at)
				return
			}
			p.hosts[h.Name.S] = &target{name: "host:" + h.Name.S, at: h.Name.At, over: p.body(c, h.Conf.V)}
		})
	}
	for i, l := range s.Labels {
		c.Within([]string{"labels", shape.Nth(i)}, func() {
			t := &target{name: "label:" + l.Label.Key.S, at: l.At, label: l.Label.Key.S, over: p.body(c, l.Conf.V)}
			for _, v := range l.Label.Values {
				t.values = append(t.values, v.S)
			}
			p.labels = append(p.labels, t)
		})
	}
	p.deadLabels(c)
}

// deadLabels warns of entries whose every value a later entry takes away.
func (p *part) deadLabels(c *shape.Checker) {
	for i, t := range p.labels {
		taken := map[string]bool{}
		var by *target
		for _, later := range p.labels[i+1:] {
			if later.label == t.label {
				for _, v := range later.values {
					taken[v] = true
				}
				by = later
			}
		}
		dead := by != nil && len(t.values) > 0
		for _, v := range t.values {
			dead = dead && taken[v]
		}
		if dead {
			c.Warnf(t.at, "dead-override", "only the last entry that fits a node applies", "the entry has no effect: label %s=%s is taken by the entry at %s",
				t.label, strings.Join(t.values, "|"), by.at)
		}
	}
}

// body is the part of an override's conf that the module reads.
func (p *part) body(c *shape.Checker, conf *tree.Value) *tree.Value {
	if conf == nil || conf.Kind == tree.Null {
		return nil
	}
	if !c.Want(conf, tree.Mapping) {
		return nil
	}
	if p.Name == module.Machine {
		return conf
	}
	for _, f := range conf.Fields {
		switch {
		case f.Key == p.Name, f.Key == "log_colors", f.Key == "extra_verbose", f.Key == "chroot_mnt_path":
		case slices.Contains(module.Names(), f.Key):
			c.Warnf(f.At, "dead-override", "move it to divingbell_"+f.Key, "%s has no effect in an override of %s", f.Key, p.Name)
		default:
			c.Unknown(f, module.Names())
		}
	}
	return conf.Get(p.Name)
}

func (p *part) where() []string {
	if p.Name == module.Machine {
		return []string{module.Machine}
	}
	return []string{"conf", p.Name}
}

// compileTarget compiles a module for one target, and reports what is wrong with it.
func (p *part) compileTarget(c *module.Checker, t *target) *module.Fragment {
	f := &module.Fragment{}
	if t == offTarget {
		return f
	}
	v := p.effective(t, func(over *tree.Value) {
		c.Warnf(over.At, "dead-override", "give the same kind of value as the base", "a map cannot replace a value or a list: the base stays")
	})
	p.Compile(c, v, f)
	return f
}
