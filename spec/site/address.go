// SPDX-License-Identifier: Apache-2.0

package site

import (
	"net/netip"
	"slices"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/machine"
	"github.com/caisson-os/caisson/spec/site/module"
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
