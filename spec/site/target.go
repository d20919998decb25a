// SPDX-License-Identifier: Apache-2.0

package site

import (
	"maps"
	"slices"
	"strings"
)

// checkTargets merges, checks and compiles every target of every module.
func (s *Site) checkTargets(c *checker) {
	for _, p := range s.parts {
		c.within(p.where(), func() {
			p.def.frag = p.compileTarget(c, p.def)
			for _, t := range p.labels {
				t.frag = p.compileTarget(c, t)
			}
		})
		s.checkHosts(c, p)
		if p.name == "uamlite" && s.HasLayer() && !slices.ContainsFunc(p.def.frag.accounts.Users, administers) {
			c.within(p.where(), func() {
				c.notef(s.doc.Layer.At, "no-login", "add a user with user_sudo and user_sshkeys", "no user of the layer can log in and become root")
			})
		}
		s.unusedLabels(c, p)
	}
}

// maxShared bounds what is kept compiled of one module's host entries.
const maxShared = 4096

// checkHosts compiles each host entry: for what it reports, and to share the
// result between entries that say the same.
func (s *Site) checkHosts(c *checker, p *part) {
	unknown := 0
	shared := map[string]*fragment{}
	for _, name := range slices.Sorted(maps.Keys(p.hosts)) {
		t := p.hosts[name]
		key := string(t.over.appendText(nil))
		if t.frag = shared[key]; t.frag == nil {
			before := len(c.report.Problems)
			var f *fragment
			c.within(p.where(), func() { f = p.compileTarget(c, t) })
			if len(c.report.Problems) == before && len(shared) < maxShared { // a problem has its place in each entry
				shared[key], t.frag = f, f
			}
		}
		if _, ok := s.byName[name]; !ok && len(s.nodes) > 0 {
			hint := ""
			if unknown++; unknown <= 20 { // a suggestion looks at every node
				hint = didYouMeanNode(name, s.nodes)
			}
			c.within(p.where(), func() {
				c.warnf(t.at, "unknown-node", hint, "the entry for host %q has no effect: no node has this name", name)
			})
		}
	}
}

func (p *part) where() []string {
	if p.name == machineModule {
		return []string{machineModule}
	}
	return []string{"conf", p.name}
}

// compileTarget compiles a module for one target, and reports what is wrong with it.
func (p *part) compileTarget(c *checker, t *target) *fragment {
	f := &fragment{}
	if t == offTarget {
		return f
	}
	v := p.effective(t, func(over *value) {
		c.warnf(over.at, "dead-override", "give the same kind of value as the base", "a map cannot replace a value or a list: the base stays")
	})
	p.compile(c, v, f)
	return f
}

// unusedLabels says which label entries no node of the inventory has.
func (s *Site) unusedLabels(c *checker, p *part) {
	if len(s.nodes) == 0 {
		return
	}
	for _, t := range p.labels {
		if !slices.ContainsFunc(s.nodes, func(n Node) bool {
			v, ok := n.label(t.label)
			return ok && slices.Contains(t.values, v)
		}) {
			c.within(p.where(), func() {
				c.notef(t.at, "unused-label", "", "no node has label %s=%s", t.label, strings.Join(t.values, "|"))
			})
		}
	}
}

// label is a node's label, or what every node has without being told.
func (n Node) label(key string) (string, bool) {
	v, ok := n.Labels[key]
	switch {
	case ok:
	case key == hostnameLabel:
		return n.Name, true
	case key == "kubernetes.io/os":
		return "linux", true
	}
	return v, ok
}

func didYouMeanNode(name string, nodes []Node) string {
	var names []string
	for _, n := range nodes[:min(len(nodes), 2000)] {
		names = append(names, n.Name)
	}
	if hint := didYouMean(name, names); strings.HasPrefix(hint, "did you mean") {
		return hint
	}
	return "names are compared byte for byte with the node's name or its label " + hostnameLabel
}
