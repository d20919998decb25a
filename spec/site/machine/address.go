// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"net/netip"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// checkRouters refuses a router that cannot be one: of a family in which the card has no
// address, or its own. One that no network of the card has is reached on the link, see
// [spec.Interface.OnLink]; where the card has more than addresses of a host that may be a slip.
// What DHCP brings is not known here.
func checkRouters(c *shape.Checker, v *tree.Value, i spec.Interface) {
	check := func(at report.Pos, text string) {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return // refused elsewhere
		}
		var own, family, network, reached bool // how the card's addresses are to the router
		for _, text := range i.Addresses {
			p, err := netip.ParsePrefix(text)
			same := err != nil || p.Addr().Is4() == a.Is4()
			own, family, network = own || p.Addr() == a, family || same, network || same && !p.IsSingleIP()
		}
		for _, r := range i.Routes {
			p, err := netip.ParsePrefix(r.To)
			reached = reached || r.Via == "" && err == nil && p.Contains(a)
		}
		switch {
		case !a.IsGlobalUnicast() && !a.IsLinkLocalUnicast():
			c.Errorf(at, "gateway", "", "%s is not the address of a router", a)
		case own:
			c.Errorf(at, "gateway", "a router is another machine", "%s is the card's own address", a)
		case !i.OnLink(text):
		case !family:
			c.Errorf(at, "gateway", "give the card an address of this family", "the card has no address by which it reaches the router %s", a)
		case network && !reached:
			c.Warnf(at, "gateway", "write a route to it without via, in routes, if it is on the link all the same",
				"no network of the card has the router %s", a)
		}
	}
	if at := c.At(v, "gateway"); at != (report.Pos{}) {
		check(at, i.Gateway)
	}
	for n, r := range i.Routes {
		if at := c.At(v.Get("routes").List[n], "via"); at != (report.Pos{}) {
			c.Within([]string{"routes", shape.Nth(n)}, func() { check(at, r.Via) })
		}
	}
}

// checkOnce refuses an address that two entries have.
func checkOnce(c *shape.Checker, list *tree.Value, all []spec.Interface) {
	first := map[netip.Addr]report.Pos{}
	for i, one := range all {
		for n, text := range one.Addresses {
			at := c.Nth(list.List[i].Get("addresses"), n)
			a, ok := ownAddress(text)
			if before, twice := first[a]; ok && twice {
				c.Within([]string{"interfaces", shape.Nth(i)}, func() {
					c.Errorf(at, "duplicate", "", "the address %s is given already, at %s", a, before)
				})
			}
			first[a] = at
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
