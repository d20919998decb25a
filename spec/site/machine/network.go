// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"iter"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

var (
	hostText = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9.])?$`)
	macText  = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)
	uuidText = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

// isHost tells a host's or domain's name, of at most 253 characters.
func isHost(name string) bool { return len(name) <= 253 && hostText.MatchString(name) }

// checkNetwork checks a network that v says, and gives its values their one spelling.
func checkNetwork(c *shape.Checker, v *tree.Value, n *spec.Network) {
	n.DNS = resolvers(c, v.Get("dns"), n.DNS)
	for i, name := range n.Search {
		c.Refuse(!isHost(name), c.Nth(v.Get("search"), i), "host-name", "", "%q is not a domain", name)
	}
	for i, name := range n.NTP {
		if _, err := netip.ParseAddr(name); err != nil && !isHost(name) {
			c.Errorf(c.Nth(v.Get("ntp"), i), "host-name", "", "%q is neither a host name nor an IP address", name)
		}
	}
	list := v.Get("interfaces")
	for i := range n.Interfaces {
		c.Within([]string{"interfaces", shape.Nth(i)}, func() { checkInterface(c, list.List[i], &n.Interfaces[i]) })
	}
	checkTogether(c, list, n.Interfaces)
}

func resolvers(c *shape.Checker, v *tree.Value, texts []string) (out []string) {
	for i, t := range texts {
		if a, err := netip.ParseAddr(t); err != nil {
			c.Errorf(c.Nth(v, i), "address", "a resolver is given by address", "%q is not an IP address", t)
		} else {
			out = append(out, a.String())
		}
	}
	return out
}

func checkInterface(c *shape.Checker, v *tree.Value, out *spec.Interface) {
	mtu(c, v, out.MTU)
	out.DHCP = unless("no", out.DHCP)
	addresses(c, v, out.Addresses)
	gateway(c, v, out.Gateway)
	routes(c, v, out.Routes)
	hasMAC := c.At(v, "mac") != report.Pos{}
	if hasMAC {
		out.MAC = mac(c, c.At(v, "mac"), out.MAC)
	}
	if out.Name != "" {
		c.Valid(c.At(v, "name"), rules.Interface(out.Name))
	}
	made := ""
	if out.Bond != nil {
		made = "bond"
		checkBond(c, v.Get("bond"), out.Bond)
	}
	if out.VLAN != nil {
		c.Refuse(made != "", c.At(v), "conflict", "give the VLAN an entry of its own, on the bond", "an interface is a bond or a VLAN")
		made = "VLAN"
		c.Refuse(out.VLAN.ID < 1 || out.VLAN.ID > 4094, c.At(v, "vlan", "id"), "range", "", "the id of a VLAN is between 1 and 4094, not %d",
			out.VLAN.ID)
	}
	switch {
	case made != "" && out.Name == "":
		c.Errorf(c.At(v), "required", "", "a %s needs a name", made)
	case made != "" && hasMAC:
		c.Errorf(c.At(v, "mac"), "conflict", "leave it out: the members of a bond are found by theirs", "a %s is made and not found by mac", made)
	case out.MAC == "" && out.Name == "":
		c.Errorf(c.At(v), "required", "", "an interface needs mac or name")
	}
	checkRouters(c, v, *out)
}

func checkBond(c *shape.Checker, v *tree.Value, b *spec.Bond) {
	b.LACPRate = unless("slow", b.LACPRate)
	checkMode(c, v, b.Mode, &b.MinLinks, len(b.Members))
	var members []string
	for i, t := range b.Members {
		at := c.Nth(v.Get("members"), i)
		if m := mac(c, at, t); m != "" {
			if slices.Contains(members, m) {
				c.Errorf(at, "duplicate", "", "%s is a member already", m)
				continue
			}
			members = append(members, m)
		}
	}
	c.Refuse(len(b.Members) == 0, c.At(v), "required", "", "a bond needs members")
	slices.Sort(members)
	b.Members = members
	if at := c.At(v, "primary"); at != (report.Pos{}) {
		switch b.Primary = mac(c, at, b.Primary); {
		case !slices.Contains(spec.PrimaryModes, b.Mode):
			c.Errorf(at, "conflict", "primary is of modes "+strings.Join(spec.PrimaryModes, ", "), "a bond of mode %s has no primary member", b.Mode)
		case b.Primary != "" && !slices.Contains(members, b.Primary):
			c.Errorf(at, "unknown-name", "one of members", "%s is not a member", b.Primary)
		}
	}
}

// checkMode checks what only bonds of some modes have.
func checkMode(c *shape.Checker, v *tree.Value, mode string, links *int64, members int) {
	minLinks(c, v, mode, links, members)
	if at := c.At(v, "transmitHashPolicy"); at != (report.Pos{}) && slices.Contains(spec.BondModes, mode) &&
		!slices.Contains(spec.HashModes, mode) {
		c.Errorf(at, "conflict", "transmitHashPolicy is of modes "+strings.Join(spec.HashModes, ", "),
			"a bond of mode %s has no hash policy", mode)
	}
}

// minLinks checks what only a bond by LACP has.
func minLinks(c *shape.Checker, v *tree.Value, mode string, links *int64, members int) {
	at := c.At(v, "minLinks")
	for _, t := range []report.Pos{c.At(v, "lacpRate"), at} {
		if t != (report.Pos{}) && mode != spec.Bond8023AD {
			c.Errorf(t, "conflict", "lacpRate and minLinks are of mode 802.3ad", "a bond of mode %s has no LACP", mode)
			*links = 0
			return
		}
	}
	if at != (report.Pos{}) && (*links < 1 || *links > int64(members)) {
		c.Errorf(at, "range", "", "minLinks is between 1 and the number of members, not %d", *links)
	}
}

// checkTogether checks what entries say of each other.
func checkTogether(c *shape.Checker, list *tree.Value, all []spec.Interface) {
	const hint = "one entry an interface; an override replaces the whole list"
	names, macs, member, under := map[string]int{}, map[string]bool{}, map[string]string{}, map[string]bool{}
	for i, one := range all {
		if _, twice := names[one.Name]; one.Name != "" && twice {
			c.Errorf(c.At(list.List[i], "name"), "duplicate", hint, "interface %s is given already", one.Name)
		}
		c.Refuse(one.MAC != "" && macs[one.MAC], c.At(list.List[i], "mac"), "duplicate", hint, "the interface with %s is given already", one.MAC)
		names[one.Name], macs[one.MAC] = i, true
		if one.VLAN != nil {
			under[one.VLAN.On] = true
		}
		if one.Bond == nil {
			continue
		}
		for _, m := range one.Bond.Members {
			if other, twice := member[m]; twice {
				c.Errorf(c.At(list.List[i], "bond"), "duplicate", "", "%s is a member of %s already", m, cmp.Or(other, "another bond"))
			}
			member[m] = one.Name
		}
	}
	checkOnce(c, list, all)
	tagged := map[spec.VLAN]string{}
	for i, one := range all {
		d := list.List[i]
		if v := one.VLAN; v != nil {
			if other, twice := tagged[*v]; twice {
				c.Errorf(c.At(d, "vlan", "id"), "duplicate", "give one of them all the addresses", "VLAN %d on %s is %s already",
					v.ID, v.On, cmp.Or(other, "another entry"))
			}
			tagged[*v] = one.Name
			switch on, known := names[v.On]; {
			case !known:
				c.Errorf(c.At(d, "vlan", "on"), "unknown-name", "add an entry for the card, as in {name: "+shape.Quoted(v.On)+"}",
					"no interface is called %q", v.On)
			case all[on].VLAN != nil:
				c.Errorf(c.At(d, "vlan", "on"), "conflict", "name the card or the bond below", "%s is a VLAN itself", v.On)
			case mtuBelow(all[on]) > 0 && one.MTU > mtuBelow(all[on]):
				c.Errorf(c.At(d, "mtu"), "conflict", "give "+v.On+" this mtu or a higher one",
					"the MTU of a VLAN is at most that of what it is on: %s has %d", v.On, mtuBelow(all[on]))
			}
		}
		bond, isMember := member[one.MAC]
		switch {
		case isMember && one.MAC != "":
			c.Errorf(c.At(d), "conflict", "leave the entry out: a member has the settings of its bond", "%s is a member of %s", one.MAC, bond)
		case one.Bond == nil && one.VLAN == nil && len(one.Addresses) == 0 && one.DHCP == "" && !under[one.Name]:
			c.Errorf(c.At(d), "required", "write dhcp: ipv4; a card that is left out is asked for an address by DHCP only if the node booted by it",
				"an interface needs addresses, dhcp or a VLAN on it")
		case one.MAC != "" && one.Name != "" && !under[one.Name]:
			c.Warnf(c.At(d, "name"), "no-effect", "leave the name out, and write in ethtool and elsewhere what the kernel calls the card",
				"a card that mac finds keeps the name that the kernel gave it: only a VLAN on it would call it %s", one.Name)
		}
	}
}

// mtuBelow is the MTU of a card or a bond for what is on it, 0 where the driver's or the one
// that DHCP brings counts. The kernel makes bonds with 1500.
func mtuBelow(i spec.Interface) int64 {
	if i.Bond != nil && i.DHCP == "" {
		return cmp.Or(i.MTU, 1500)
	}
	return i.MTU
}

func mac(c *shape.Checker, at report.Pos, text string) string {
	m := strings.ReplaceAll(strings.ToLower(text), "-", ":")
	if !macText.MatchString(m) {
		c.Errorf(at, "mac", "as in 52:54:00:12:34:56", "%q is not the address of an interface", text)
		return ""
	}
	return m
}

// unless returns the word of a document, where the usual one is left out.
func unless(usual, word string) string {
	if word == usual {
		return ""
	}
	return word
}

func mtu(c *shape.Checker, v *tree.Value, n int64) {
	if at := c.At(v, "mtu"); at != (report.Pos{}) && (n < 576 || n > 65535) {
		c.Errorf(at, "range", "", "an MTU is between 576 and 65535, not %d", n)
	}
}

func addresses(c *shape.Checker, v *tree.Value, texts []string) {
	for i, t := range texts {
		if _, err := netip.ParsePrefix(t); err != nil {
			c.Errorf(c.Nth(v.Get("addresses"), i), "address", "write the prefix length too, as in 192.0.2.7/24",
				"%q is not an address with a prefix length", t)
		}
	}
}

func gateway(c *shape.Checker, v *tree.Value, text string) {
	if text != "" {
		router(c, c.At(v, "gateway"), text)
	}
}

// router reads the address of a router. A zone would name the interface a second time,
// and systemd.network(5) takes none.
func router(c *shape.Checker, at report.Pos, text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	switch {
	case err != nil:
		c.Errorf(at, "address", "", "%q is not an IP address", text)
	case a.Zone() != "":
		c.Errorf(at, "address", "write "+a.WithZone("").String()+": the interface is that of the entry", "%q has a zone", text)
	default:
		return a, true
	}
	return netip.Addr{}, false
}

func routes(c *shape.Checker, v *tree.Value, list []spec.Route) {
	for i, r := range list {
		c.Within([]string{"routes", shape.Nth(i)}, func() {
			route := v.Get("routes").List[i]
			to, err := netip.ParsePrefix(r.To)
			switch at := c.At(route, "to"); {
			case at == report.Pos{}:
			case err != nil:
				c.Errorf(at, "address", "as in 198.51.100.0/24", "%q is not a network", r.To)
			case to != to.Masked():
				c.Errorf(at, "address", "write "+to.Masked().String(), "%s is an address in a network", to)
			}
			if at := c.At(route, "metric"); at != (report.Pos{}) && (r.Metric < 1 || r.Metric > math.MaxUint32) {
				c.Errorf(at, "range", "", "a metric is between 1 and %d, not %d", math.MaxUint32, r.Metric)
			}
			if at := c.At(route, "via"); at != (report.Pos{}) {
				if via, ok := router(c, at, r.Via); ok && err == nil && via.Is4() != to.Addr().Is4() {
					c.Errorf(at, "address", "a route and its router are of one family", "%s is not a router for %s", via, to)
				}
			}
		})
	}
}

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

// CheckAddresses refuses a static address that cards of several machines would have, and warns of
// nodes whose only addresses are those of other cards than they are known by. Written has the
// settings of a node as they were written.
func CheckAddresses(c *shape.Checker, all iter.Seq2[inventory.Node, *Settings], written func(inventory.Node) *tree.Value) {
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
	for n, m := range all {
		if leadsNowhere(m.Network, n.Match.MACs) {
			if len(apart) == 0 {
				apartAt = n.At()
			}
			apart = append(apart, n.Name)
		}
		Addresses(m.Network, n.Name, func(text string, a netip.Addr, card string) {
			o := owners[a]
			if o == nil {
				o = &owner{a: a, card: card}
				owners[a], order = o, append(order, o)
			}
			if len(o.nodes) == 0 || o.nodes[len(o.nodes)-1] != n.Name {
				o.nodes = append(o.nodes, n.Name)
			}
			if o.card != card && len(o.nodes) > 1 && !o.twice {
				o.twice, o.at = true, addressAt(written(n), text)
			}
		})
	}
	if len(apart) > 0 {
		c.Warnf(apartAt, "unreached", "list the card of the boot, as in {mac: …, dhcp: ipv4}, or give a card a gateway",
			"the loader of %s makes cards that no router goes with, and asks by DHCP on no other", plain.Some(apart, 5))
	}
	for _, o := range order {
		if o.twice {
			c.Within([]string{"machine", "network", "interfaces"}, func() {
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
