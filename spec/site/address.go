// SPDX-License-Identifier: Apache-2.0

package site

import (
	"net/netip"
	"slices"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/module"
	"github.com/caisson-os/caisson/spec/site/override"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// checkAddresses refuses a static address that cards of several machines would have.
func (s *Site) checkAddresses(c *shape.Checker) {
	type owner struct {
		a     netip.Addr
		card  string
		nodes []string
		at    report.Pos
		twice bool
	}
	owners, order := map[netip.Addr]*owner{}, []*owner{}
	p := s.parts[slices.IndexFunc(s.parts, func(p *override.Part) bool { return p.Name == module.Machine })]
	for _, n := range s.nodes {
		t := p.Choose(n.Name, n.Label)
		f := t.Frag
		if f == nil {
			f = p.CompileTarget(s.quiet(), t)
		}
		machine.Addresses(f.Machine.Network, n.Name, func(text string, a netip.Addr, card string) {
			o := owners[a]
			if o == nil {
				o = &owner{a: a, card: card}
				owners[a], order = o, append(order, o)
			}
			if len(o.nodes) == 0 || o.nodes[len(o.nodes)-1] != n.Name {
				o.nodes = append(o.nodes, n.Name)
			}
			if o.card != card && len(o.nodes) > 1 && !o.twice {
				o.twice, o.at = true, addressAt(p.Effective(t, nil), text)
			}
		})
	}
	for _, o := range order {
		if o.twice {
			c.Within([]string{module.Machine, "network", "interfaces"}, func() {
				c.Errorf(o.at, "duplicate", "machine.overrides give each node its own", "the address %s is of %d nodes: %s", o.a, len(o.nodes), plain.Some(o.nodes, 5))
			})
		}
	}
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
