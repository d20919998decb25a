// SPDX-License-Identifier: Apache-2.0

package site

import (
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/override"
)

// checkTargets merges, checks and compiles every target of every module.
func (s *Site) checkTargets(c *module.Checker) {
	for _, p := range s.parts {
		c.Within(p.Where(), func() {
			p.Def.Frag = p.CompileTarget(c, p.Def)
			for _, t := range p.Labels {
				t.Frag = p.CompileTarget(c, t)
			}
		})
		s.checkHosts(c, p)
		if p.Name == "uamlite" && s.HasLayer() && !slices.ContainsFunc(p.Def.Frag.Recipe.Accounts.Users, module.Administers) {
			c.Within(p.Where(), func() {
				c.Notef(s.doc.Layer.At, "no-login", "add a user with user_sudo and user_sshkeys", "no user of the layer can log in and become root")
			})
		}
		s.unusedLabels(c, p)
	}
	s.parts.CheckOwners(c.Checker)
}

// maxShared bounds what is kept compiled of one module's host entries.
const maxShared = 4096

// checkHosts compiles each host entry: for what it reports, and to share the
// result between entries that say the same.
func (s *Site) checkHosts(c *module.Checker, p *override.Part) {
	unknown := 0
	shared := map[string]*module.Fragment{}
	for _, name := range slices.Sorted(maps.Keys(p.Hosts)) {
		t := p.Hosts[name]
		key := string(t.Over.AppendText(nil))
		if t.Frag = shared[key]; t.Frag == nil {
			before := len(c.Report.Problems)
			var f *module.Fragment
			c.Within(p.Where(), func() { f = p.CompileTarget(c, t) })
			if len(c.Report.Problems) == before && len(shared) < maxShared { // a problem has its place in each entry
				shared[key], t.Frag = f, f
			}
		}
		if !s.fleet.Has(name) && len(s.fleet.Nodes) > 0 {
			hint := ""
			if unknown++; unknown <= 20 { // a suggestion looks at every node
				hint = inventory.DidYouMean(name, s.fleet.Nodes)
			}
			c.Within(p.Where(), func() {
				c.Warnf(t.At, "unknown-node", hint, "the entry for host %q has no effect: no node has this name", name)
			})
		}
	}
}

// unusedLabels reports which label entries no node of the inventory has.
func (s *Site) unusedLabels(c *module.Checker, p *override.Part) {
	if len(s.fleet.Nodes) == 0 {
		return
	}
	for _, t := range p.Labels {
		if t.Label != "" && len(t.Values) > 0 && !slices.ContainsFunc(s.fleet.Nodes, func(n inventory.Node) bool {
			v, ok := n.Label(t.Label)
			return ok && slices.Contains(t.Values, v)
		}) {
			c.Within(p.Where(), func() {
				c.Warnf(t.At, "unused-label", inventory.LabelHint(t.Label, t.Values[0], s.fleet.Nodes),
					"the entry for label %s=%s has no effect: no node has it", t.Label, strings.Join(t.Values, "|"))
			})
		}
	}
}
