// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// checkRouters refuses a gateway and the router of a route that no network of the card has:
// neither one of its addresses nor a route on the link. What DHCP brings is not known here.
func checkRouters(c *shape.Checker, gateway shape.Text, docs []routeDoc, dhcp string, addresses []string, routes []spec.Route) {
	if dhcp != "" {
		return
	}
	networks := slices.Clone(addresses)
	for _, r := range routes {
		if r.Via == "" {
			networks = append(networks, r.To)
		}
	}
	reached := func(t shape.Text) bool {
		a, err := netip.ParseAddr(t.S)
		if err != nil || a.Zone() != "" || a.Is6() && a.IsLinkLocalUnicast() {
			return true // refused elsewhere, or always on the link
		}
		return slices.ContainsFunc(networks, func(n string) bool {
			p, err := netip.ParsePrefix(n)
			return err != nil || p.Contains(a)
		})
	}
	const hint = "give the card an address in its network, or a route to it without via"
	if gateway.Set() && !reached(gateway) {
		c.Errorf(gateway.At, "gateway", hint, "no network of the card has the gateway %s", gateway.S)
	}
	for i, d := range docs {
		if d.Via.Set() && !reached(d.Via) {
			c.Within([]string{"routes", shape.Nth(i)}, func() {
				c.Errorf(d.Via.At, "gateway", hint, "no network of the card has the router %s", d.Via.S)
			})
		}
	}
}

// checkOnce refuses an address that two entries have.
func checkOnce(c *shape.Checker, docs []interfaceDoc) {
	first := map[netip.Addr]report.Pos{}
	for i, d := range docs {
		for _, t := range d.Addresses {
			a, ok := ownAddress(t.S)
			if at, twice := first[a]; ok && twice {
				c.Within([]string{"interfaces", shape.Nth(i)}, func() {
					c.Errorf(t.At, "duplicate", "", "the address %s is given already, at %s", a, at)
				})
			}
			first[a] = t.At
		}
	}
}

// Addresses calls for each static address that only one machine can have, with what tells
// the card from others: its hardware address, those of a bond's members, or its name on the
// node. Addresses of a link alone are not among them: each link has its own.
func Addresses(n spec.Network, node string, each func(text string, a netip.Addr, card string)) {
	cards := map[string]string{}
	for _, i := range n.Interfaces {
		switch {
		case i.Bond != nil:
			cards[i.Name] = strings.Join(i.Bond.Members, " ")
		case i.MAC != "":
			cards[i.Name] = i.MAC
		default:
			cards[i.Name] = node + " " + i.Name
		}
	}
	for _, i := range n.Interfaces {
		card := cmp.Or(i.MAC, cards[i.Name])
		if i.VLAN != nil {
			card = cards[i.VLAN.On]
		}
		for _, text := range i.Addresses {
			if a, ok := ownAddress(text); ok {
				each(text, a, card)
			}
		}
	}
}

func ownAddress(text string) (netip.Addr, bool) {
	p, err := netip.ParsePrefix(text)
	return p.Addr(), err == nil && !p.Addr().IsLinkLocalUnicast()
}
