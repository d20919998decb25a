// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"cmp"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// NetworkDoc is a network as it is written.
type NetworkDoc struct {
	DNS        []shape.Text   `site:"dns" doc:"resolver addresses"`
	Search     []shape.Text   `site:"search" doc:"search domains"`
	NTP        []shape.Text   `site:"ntp" doc:"time servers"`
	Interfaces []interfaceDoc `site:"interfaces" doc:"cards with settings of their own, bonds and VLANs; a card that is not listed uses DHCP if the node booted from it; without a list, a node that booted without a network asks on every card"`
}

type interfaceDoc struct {
	MAC       shape.Text   `site:"mac" doc:"MAC address of a card; without it, name finds the card"`
	Name      shape.Text   `site:"name" doc:"name of a card as the kernel has it, or of the bond or VLAN that is made"`
	Bond      *bondDoc     `site:"bond" doc:"make the interface of several cards"`
	VLAN      *vlanDoc     `site:"vlan" doc:"make the interface a tagged network on another one"`
	MTU       shape.Number `site:"mtu" doc:"MTU in bytes"`
	DHCP      shape.Text   `site:"dhcp" enum:"no,ipv4,ipv6,both" doc:"ask for an address by DHCP; no when absent"`
	Addresses []shape.Text `site:"addresses" doc:"addresses with prefix length, as in 192.0.2.7/24"`
	Gateway   shape.Text   `site:"gateway" doc:"address of the default route"`
	Routes    []routeDoc   `site:"routes"`
	At        report.Pos
}

type bondDoc struct {
	Members    []shape.Text `site:"members,required" doc:"MAC addresses of cards, which need no entry of their own"`
	Mode       shape.Text   `site:"mode,required" enum:"802.3ad,active-backup,balance-alb,balance-rr,balance-tlb,balance-xor,broadcast"`
	LACPRate   shape.Text   `site:"lacpRate" enum:"slow,fast" doc:"LACP rate of mode 802.3ad; slow when absent"`
	MinLinks   shape.Number `site:"minLinks" doc:"members of mode 802.3ad that must be up"`
	HashPolicy shape.Text   `site:"transmitHashPolicy" enum:"layer2,layer2+3,layer3+4,encap2+3,encap3+4" doc:"by what packets are spread over members, in modes 802.3ad, balance-tlb and balance-xor; layer2 when absent"`
	At         report.Pos
}

type vlanDoc struct {
	ID shape.Number `site:"id,required" doc:"number of the VLAN, 1 to 4094"`
	On shape.Text   `site:"on,required" doc:"name of another entry: a card or a bond"`
}

type routeDoc struct {
	To  shape.Text `site:"to,required" doc:"a network, as in 198.51.100.0/24"`
	Via shape.Text `site:"via" doc:"address of a router; the network is on the link when absent"`
}

var (
	hostText = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9.])?$`)
	macText  = regexp.MustCompile(`^[0-9a-f]{2}(:[0-9a-f]{2}){5}$`)
	uuidText = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
)

func compileNetwork(c *shape.Checker, d NetworkDoc) spec.Network {
	n := spec.Network{DNS: resolvers(c, d.DNS)}
	for _, t := range d.Search {
		if !hostText.MatchString(t.S) {
			c.Errorf(t.At, "host-name", "", "%q is not a domain", t.S)
		}
		n.Search = append(n.Search, t.S)
	}
	for _, t := range d.NTP {
		if _, err := netip.ParseAddr(t.S); err != nil && !hostText.MatchString(t.S) {
			c.Errorf(t.At, "host-name", "", "%q is neither a host name nor an IP address", t.S)
		}
		n.NTP = append(n.NTP, t.S)
	}
	for i, t := range d.Interfaces {
		c.Within([]string{"interfaces", shape.Nth(i)}, func() { n.Interfaces = append(n.Interfaces, compileInterface(c, t)) })
	}
	checkTogether(c, d.Interfaces, n.Interfaces)
	return n
}

func resolvers(c *shape.Checker, texts []shape.Text) (out []string) {
	for _, t := range texts {
		if a, err := netip.ParseAddr(t.S); err != nil {
			c.Errorf(t.At, "address", "a resolver is given by address", "%q is not an IP address", t.S)
		} else {
			out = append(out, a.String())
		}
	}
	return out
}

func compileInterface(c *shape.Checker, d interfaceDoc) spec.Interface {
	out := spec.Interface{Name: d.Name.S, MTU: mtu(c, d.MTU), DHCP: dhcp(d.DHCP), Addresses: addresses(c, d.Addresses), Gateway: gateway(c, d.Gateway), Routes: routes(c, d.Routes)}
	if d.MAC.Set() {
		out.MAC = mac(c, d.MAC)
	}
	if out.Name != "" {
		c.Valid(d.Name.At, rules.Interface(out.Name))
	}
	made := ""
	if d.Bond != nil {
		made = "bond"
		out.Bond = compileBond(c, d.Bond)
	}
	if d.VLAN != nil {
		if made != "" {
			c.Errorf(d.At, "conflict", "give the VLAN an entry of its own, on the bond", "an interface is a bond or a VLAN")
		}
		made = "VLAN"
		if d.VLAN.ID.N < 1 || d.VLAN.ID.N > 4094 {
			c.Errorf(d.VLAN.ID.At, "range", "", "the id of a VLAN is between 1 and 4094, not %d", d.VLAN.ID.N)
		}
		out.VLAN = &spec.VLAN{ID: d.VLAN.ID.N, On: d.VLAN.On.S}
	}
	switch {
	case made != "" && out.Name == "":
		c.Errorf(d.At, "required", "", "a %s needs a name", made)
	case made != "" && d.MAC.Set():
		c.Errorf(d.MAC.At, "conflict", "leave it out: the members of a bond are found by theirs", "a %s is made and not found by mac", made)
	case out.MAC == "" && out.Name == "":
		c.Errorf(d.At, "required", "", "an interface needs mac or name")
	}
	checkRouters(c, d.Gateway, d.Routes, out)
	return out
}

func compileBond(c *shape.Checker, d *bondDoc) *spec.Bond {
	out := &spec.Bond{Mode: d.Mode.S, MinLinks: minLinks(c, d.Mode, d.LACPRate, d.MinLinks, len(d.Members)), HashPolicy: transmitHashPolicy(c, d.Mode, d.HashPolicy)}
	if d.LACPRate.S == spec.LACPFast {
		out.LACPRate = d.LACPRate.S
	}
	for _, t := range d.Members {
		if m := mac(c, t); m != "" {
			if slices.Contains(out.Members, m) {
				c.Errorf(t.At, "duplicate", "", "%s is a member already", m)
				continue
			}
			out.Members = append(out.Members, m)
		}
	}
	if len(d.Members) == 0 {
		c.Errorf(d.At, "required", "", "a bond needs members")
	}
	slices.Sort(out.Members)
	return out
}

// minLinks checks what only a bond by LACP has.
func minLinks(c *shape.Checker, mode, rate shape.Text, links shape.Number, members int) int64 {
	for _, t := range []report.Pos{rate.At, links.At} {
		if t != (report.Pos{}) && mode.S != spec.Bond8023AD {
			c.Errorf(t, "conflict", "lacpRate and minLinks are of mode 802.3ad", "a bond of mode %s has no LACP", mode.S)
			return 0
		}
	}
	if links.Set() && (links.N < 1 || links.N > int64(members)) {
		c.Errorf(links.At, "range", "", "minLinks is between 1 and the number of members, not %d", links.N)
	}
	return links.N
}

// transmitHashPolicy checks what only a bond that chooses a member by a hash has.
func transmitHashPolicy(c *shape.Checker, mode, policy shape.Text) string {
	if policy.Set() && slices.Contains(spec.BondModes, mode.S) && !slices.Contains(spec.HashModes, mode.S) {
		c.Errorf(policy.At, "conflict", "transmitHashPolicy is of modes "+strings.Join(spec.HashModes, ", "), "a bond of mode %s has no hash policy", mode.S)
	}
	return policy.S
}

// checkTogether checks what entries say of each other.
func checkTogether(c *shape.Checker, docs []interfaceDoc, all []spec.Interface) {
	const hint = "one entry an interface; an override replaces the whole list"
	names, macs, member, under := map[string]int{}, map[string]bool{}, map[string]string{}, map[string]bool{}
	for i, one := range all {
		if _, twice := names[one.Name]; one.Name != "" && twice {
			c.Errorf(docs[i].Name.At, "duplicate", hint, "interface %s is given already", one.Name)
		}
		if one.MAC != "" && macs[one.MAC] {
			c.Errorf(docs[i].MAC.At, "duplicate", hint, "the interface with %s is given already", one.MAC)
		}
		names[one.Name], macs[one.MAC] = i, true
		if one.VLAN != nil {
			under[one.VLAN.On] = true
		}
		if one.Bond == nil {
			continue
		}
		for _, m := range one.Bond.Members {
			if other, twice := member[m]; twice {
				c.Errorf(docs[i].Bond.At, "duplicate", "", "%s is a member of %s already", m, cmp.Or(other, "another bond"))
			}
			member[m] = one.Name
		}
	}
	checkOnce(c, docs)
	tagged := map[spec.VLAN]string{}
	for i, one := range all {
		d := docs[i]
		if v := one.VLAN; v != nil {
			if other, twice := tagged[*v]; twice {
				c.Errorf(d.VLAN.ID.At, "duplicate", "give one of them all the addresses", "VLAN %d on %s is %s already", v.ID, v.On, cmp.Or(other, "another entry"))
			}
			tagged[*v] = one.Name
			switch on, known := names[v.On]; {
			case !known:
				c.Errorf(d.VLAN.On.At, "unknown-name", "add an entry for the card, as in {name: "+shape.Quoted(v.On)+"}", "no interface is called %q", v.On)
			case all[on].VLAN != nil:
				c.Errorf(d.VLAN.On.At, "conflict", "name the card or the bond below", "%s is a VLAN itself", v.On)
			case mtuBelow(all[on]) > 0 && one.MTU > mtuBelow(all[on]):
				c.Errorf(d.MTU.At, "conflict", "give "+v.On+" this mtu or a higher one", "the MTU of a VLAN is at most that of what it is on: %s has %d", v.On, mtuBelow(all[on]))
			}
		}
		bond, isMember := member[one.MAC]
		switch {
		case isMember && one.MAC != "":
			c.Errorf(d.At, "conflict", "leave the entry out: a member has the settings of its bond", "%s is a member of %s", one.MAC, bond)
		case one.Bond == nil && one.VLAN == nil && len(one.Addresses) == 0 && one.DHCP == "" && !under[one.Name]:
			c.Errorf(d.At, "required", "write dhcp: ipv4; a card that is left out is asked for an address by DHCP only if the node booted by it", "an interface needs addresses, dhcp or a VLAN on it")
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

func mac(c *shape.Checker, t shape.Text) string {
	m := strings.ReplaceAll(strings.ToLower(t.S), "-", ":")
	if !macText.MatchString(m) {
		c.Errorf(t.At, "mac", "as in 52:54:00:12:34:56", "%q is not the address of an interface", t.S)
		return ""
	}
	return m
}

// dhcp returns the word of a document, where no is left out.
func dhcp(t shape.Text) string {
	if t.S == "no" {
		return ""
	}
	return t.S
}

func mtu(c *shape.Checker, n shape.Number) int64 {
	if n.Set() && (n.N < 576 || n.N > 65535) {
		c.Errorf(n.At, "range", "", "an MTU is between 576 and 65535, not %d", n.N)
	}
	return n.N
}

func addresses(c *shape.Checker, texts []shape.Text) (out []string) {
	for _, t := range texts {
		if _, err := netip.ParsePrefix(t.S); err != nil {
			c.Errorf(t.At, "address", "write the prefix length too, as in 192.0.2.7/24", "%q is not an address with a prefix length", t.S)
		}
		out = append(out, t.S)
	}
	return out
}

func gateway(c *shape.Checker, t shape.Text) string {
	if t.S != "" {
		router(c, t)
	}
	return t.S
}

// router reads the address of a router. A zone would name the interface a second time,
// and systemd.network(5) takes none.
func router(c *shape.Checker, t shape.Text) (netip.Addr, bool) {
	a, err := netip.ParseAddr(t.S)
	switch {
	case err != nil:
		c.Errorf(t.At, "address", "", "%q is not an IP address", t.S)
	case a.Zone() != "":
		c.Errorf(t.At, "address", "write "+a.WithZone("").String()+": the interface is that of the entry", "%q has a zone", t.S)
	default:
		return a, true
	}
	return netip.Addr{}, false
}

func routes(c *shape.Checker, docs []routeDoc) (out []spec.Route) {
	for i, d := range docs {
		c.Within([]string{"routes", shape.Nth(i)}, func() {
			to, err := netip.ParsePrefix(d.To.S)
			switch {
			case !d.To.Set():
			case err != nil:
				c.Errorf(d.To.At, "address", "as in 198.51.100.0/24", "%q is not a network", d.To.S)
			case to != to.Masked():
				c.Errorf(d.To.At, "address", "write "+to.Masked().String(), "%s is an address in a network", to)
			}
			if d.Via.Set() {
				if via, ok := router(c, d.Via); ok && err == nil && via.Is4() != to.Addr().Is4() {
					c.Errorf(d.Via.At, "address", "a route and its router are of one family", "%s is not a router for %s", via, to)
				}
			}
			out = append(out, spec.Route{To: d.To.S, Via: d.Via.S})
		})
	}
	return out
}
