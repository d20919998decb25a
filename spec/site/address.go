// SPDX-License-Identifier: Apache-2.0

package site

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// checkAddresses refuses a static address that cards of several machines would have, and warns of
// nodes whose only addresses are those of other cards than they are known by.
func (s *Site) checkAddresses(c *shape.Checker) {
	type owner struct {
		a     netip.Addr
		card  string
		nodes []string
		at    report.Pos
		twice bool
	}
	owners, order := map[netip.Addr]*owner{}, []*owner{}
	var apart []string
	var apartAt report.Pos
	p := s.parts.Named(module.Machine)
	for n, m := range s.machines() {
		if leadsNowhere(m.Network, n.Match.MACs) {
			if len(apart) == 0 {
				apartAt = n.At()
			}
			apart = append(apart, n.Name)
		}
		machine.Addresses(m.Network, n.Name, func(text string, a netip.Addr, card string) {
			o := owners[a]
			if o == nil {
				o = &owner{a: a, card: card}
				owners[a], order = o, append(order, o)
			}
			if len(o.nodes) == 0 || o.nodes[len(o.nodes)-1] != n.Name {
				o.nodes = append(o.nodes, n.Name)
			}
			if o.card != card && len(o.nodes) > 1 && !o.twice {
				o.twice, o.at = true, addressAt(p.Effective(p.Choose(n.Name, n.Label), nil), text)
			}
		})
	}
	if len(apart) > 0 {
		c.Warnf(apartAt, "unreached", "list the card of the boot, as in {mac: …, dhcp: ipv4}, or give a card a gateway",
			"the loader of %s makes cards that no router goes with, and asks by DHCP on no other", plain.Some(apart, 5))
	}
	for _, o := range order {
		if o.twice {
			c.Within([]string{module.Machine, "network", "interfaces"}, func() {
				c.Errorf(o.at, "duplicate", "machine.overrides give each node its own", "the address %s is of %d nodes: %s", o.a,
					len(o.nodes), plain.Some(o.nodes, 5))
			})
		}
	}
}

// leadsNowhere reports whether a machine has addresses, no DHCP and no router, and is known by
// other cards: its loader makes the cards of a network beside, as for storage, and stays on it.
func leadsNowhere(n spec.Network, known []string) bool {
	cards := n.Cards(nil)
	return n.Static() && len(known) > 0 && !slices.ContainsFunc(known, func(mac string) bool { return slices.Contains(cards, mac) }) &&
		!slices.ContainsFunc(n.Interfaces, func(i spec.Interface) bool {
			return i.Gateway != "" || len(i.Routes) > 0 || i.MAC == "" && i.Bond == nil && i.VLAN == nil
		})
}

// addressAt is where machine settings have an address.
func addressAt(v *tree.Value, text string) report.Pos {
	for _, i := range v.Get("network").Get("interfaces").List {
		if list := i.Get("addresses"); list != nil {
			for _, a := range list.List {
				if a.Text == text {
					return a.At
				}
			}
		}
	}
	return v.At
}

// checkLayerless reports what a site without a layer asks for and nobody can do:
// in a Site an error, unless it says that its hosts are to report it; in
// Divingbell's own files a warning.
func (s *Site) checkLayerless(r *document.Reader) {
	for _, p := range s.parts {
		at, asked := needsLayer(p)
		if !p.Image || p.Off || !asked {
			continue
		}
		const message = "%s needs a layer, and the site has none: it has no effect"
		hint := "add layer:, or attached: true where caisson does not boot the nodes, or manifests." + p.Switch() + ": false"
		r.Within(p.Where(), func() {
			switch {
			case s.doc.Attached.On:
				r.Notef(at, "needs-layer", "", "%s needs a layer: attached hosts report it and do not do it", p.Name)
			case r.Site:
				r.Errorf(at, "needs-layer", hint, message, p.Name)
			default:
				r.Warnf(at, "needs-layer", hint, message, p.Name)
			}
		})
	}
}

// needsLayer reports whether a target of p asks for what only a layer holds, and where.
func needsLayer(p *override.Part) (at report.Pos, asked bool) {
	for _, t := range p.Targets() {
		if t.Frag == nil || len(t.Frag.NeedsLayer()) == 0 {
			continue
		}
		if t == p.Def {
			return p.Base.At, true
		}
		return t.At, true
	}
	return report.Pos{}, false
}

var (
	helm    = regexp.MustCompile(`\{\{-?\s*(\.(Values|Release|Chart|Capabilities)\b|(include|tpl|template|required|toYaml)\s)`)
	unfiled = regexp.MustCompile(`^\s*\{\{.*\}\}\s*$`)
)

// words are the keys whose values programs read that have templates of their own.
var words = []string{"args", "argv", "command"}

// warnOfTemplates reports values that a template engine was to fill in: nothing here
// evaluates templates, and a node would be given the braces.
func warnOfTemplates(c *shape.Checker, v *tree.Value, key string) {
	switch {
	case v == nil:
	case v.Kind == tree.Scalar && strings.Contains(v.Text, "{{"):
		if helm.MatchString(v.Text) || unfiled.MatchString(v.Text) && !slices.Contains(words, key) {
			c.Warnf(v.At, "template", "render it first, as 'helm template' does: caisson evaluates no templates", "a template is left in the value")
		}
	default:
		for _, f := range v.Fields {
			c.In(f.Key, func() { warnOfTemplates(c, f.Val, f.Key) })
		}
		for i, e := range v.List {
			if e.Kind != tree.Scalar || strings.Contains(e.Text, "{{") {
				c.In(shape.Nth(i), func() { warnOfTemplates(c, e, key) })
			}
		}
	}
}

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
