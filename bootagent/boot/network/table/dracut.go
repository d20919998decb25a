// SPDX-License-Identifier: Apache-2.0

// Of a kernel's command line these words of dracut.cmdline(7) are read: ip=, ifname=, bond=,
// vlan=, nameserver= and rd.route=. They make the table that a site and a site.cpio have, too.
// A word that cannot be followed is left out, with a note that says why.
//
// It is not all of dracut: there is no boot from iBFT, no team, no bridge, and no hardware
// address is set.

package table

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Names are how words begin that are of the network.
var Names = []string{"ip", "ifname", "bond", "vlan", "nameserver", "rd.route"}

// Parse returns what the words say. cards are those of the machine, addresses by name;
// boot is the address of the one that it booted by, "" where that is not known. A card in
// the result has both name and address. any is how each card is asked that the result does
// not name, a word of [spec.Interface.DHCP].
func Parse(words []string, cards map[string]string, boot string) (n spec.Network, any string, notes []string) {
	l := line{cards: maps.Clone(cards), boot: boot}
	if l.cards == nil {
		l.cards = map[string]string{}
	}
	for _, name := range []string{"ifname", "bond", "vlan", "ip", "nameserver", "rd.route"} { // each may name what is before it
		for _, word := range words {
			key, value, given := strings.Cut(word, "=")
			if key != name || !given && name != "bond" {
				continue
			}
			if err := l.take(name, strings.Trim(value, `"`)); err != nil {
				l.notes = append(l.notes, fmt.Sprintf("%s: %v", word, err))
			}
		}
	}
	l.leaveOut()
	return spec.Network{DNS: l.dns, Interfaces: l.all}, l.any, l.notes
}

// line holds the words of a command line read so far.
type line struct {
	cards map[string]string // addresses by name
	boot  string
	all   []spec.Interface
	dns   []string
	any   string
	notes []string
}

func (l *line) take(name, value string) error {
	switch name {
	case "ifname":
		return l.ifname(value)
	case "bond":
		return l.bond(value)
	case "vlan":
		return l.vlan(value)
	case "ip":
		return l.ip(value)
	case "nameserver":
		return l.nameserver(strings.Trim(value, "[]"))
	}
	return l.route(value)
}

// ifname is <name>:<address of a card>.
func (l *line) ifname(value string) error {
	name, mac, _ := strings.Cut(value, ":")
	mac = strings.ToLower(mac)
	for card, address := range l.cards {
		if address == mac {
			delete(l.cards, card)
			l.cards[name] = mac
			return rules.Interface(name)
		}
	}
	return fmt.Errorf("no card has this address")
}

// entry returns the entry of an interface, which is made where it is a card's first.
func (l *line) entry(name string) (*spec.Interface, error) {
	if i := slices.IndexFunc(l.all, func(i spec.Interface) bool { return i.Name == name }); i >= 0 {
		return &l.all[i], nil
	}
	mac, known := l.cards[name]
	if !known {
		return nil, fmt.Errorf("there is no interface %q; cards are %s", name,
			cmp.Or(strings.Join(slices.Sorted(maps.Keys(l.cards)), ", "), "none"))
	}
	l.all = append(l.all, spec.Interface{Name: name, MAC: mac})
	return &l.all[len(l.all)-1], nil
}

// make adds an interface that is not a card.
func (l *line) make(i spec.Interface) error {
	if i.Name == "" {
		return fmt.Errorf("it has no name")
	}
	if err := rules.Interface(i.Name); err != nil {
		return err
	}
	if _, err := l.entry(i.Name); err == nil {
		return fmt.Errorf("there is an interface %s", i.Name)
	}
	l.all = append(l.all, i)
	return nil
}

// modes of a bond by their numbers, see bonding in the kernel's documentation.
var modes = []string{"balance-rr", "active-backup", "balance-xor", "broadcast", spec.Bond8023AD, "balance-tlb", "balance-alb"}

// bond is [<name>[:<cards>[:<options>[:<mtu>]]]]; cards and options are lists with commas.
func (l *line) bond(value string) error {
	f := append(fields(value), "", "", "", "")
	b := spec.Bond{Mode: modes[0]}
	for _, card := range strings.FieldsFunc(cmp.Or(f[1], "eth0,eth1"), comma) {
		mac, known := l.cards[card]
		if !known {
			l.notes = append(l.notes, fmt.Sprintf("bond=%s: there is no card %s", value, card))
			continue
		}
		b.Members = append(b.Members, mac)
	}
	if b.Members == nil {
		return fmt.Errorf("none of its cards is there")
	}
	slices.Sort(b.Members)
	b.Members = slices.Compact(b.Members)
	for _, option := range strings.FieldsFunc(f[2], comma) {
		if err := bondOption(&b, option); err != nil {
			return err
		}
	}
	mtu, err := number(f[3], 576, 65535)
	if err != nil {
		return err
	}
	return l.make(spec.Interface{Name: cmp.Or(f[0], "bond0"), Bond: &b, MTU: mtu})
}

func bondOption(b *spec.Bond, option string) (err error) {
	name, value, _ := strings.Cut(option, "=")
	switch name {
	case "mode":
		if i, err := strconv.Atoi(value); err == nil && i >= 0 && i < len(modes) {
			value = modes[i]
		}
		if b.Mode = value; !slices.Contains(spec.BondModes, value) {
			return fmt.Errorf("a bond has no mode %q", value)
		}
	case "lacp_rate":
		if b.LACPRate = ""; value == "fast" || value == "1" {
			b.LACPRate = spec.LACPFast
		}
	case "min_links":
		b.MinLinks, err = number(value, 0, 32)
	case "xmit_hash_policy":
		if i, err := strconv.Atoi(value); err == nil && i >= 0 && i < len(spec.HashPolicies) {
			value = spec.HashPolicies[i]
		}
		if b.HashPolicy = value; !slices.Contains(spec.HashPolicies, value) {
			return fmt.Errorf("a bond has no hash policy %q", value)
		}
	case "miimon": // links are looked at each 100 ms
	default:
		return fmt.Errorf("option %q of a bond is not known here: mode, lacp_rate, min_links and xmit_hash_policy are", name)
	}
	return err
}

// vlan is <name>:<interface below>; the id is the number at the name's end.
func (l *line) vlan(value string) error {
	name, on, _ := strings.Cut(value, ":")
	id, err := number(name[len(strings.TrimRight(name, "0123456789")):], 1, 4094)
	if err != nil || id == 0 {
		return fmt.Errorf("the name of a VLAN ends with its number, as in vlan5 or eth0.5")
	}
	below, err := l.entry(on)
	if err != nil {
		return err
	}
	if below.VLAN != nil {
		return fmt.Errorf("%s is a VLAN itself", on)
	}
	return l.make(spec.Interface{Name: name, VLAN: &spec.VLAN{ID: id, On: on}})
}

// nameserver is an address.
func (l *line) nameserver(value string) error {
	a, err := netip.ParseAddr(value)
	if err != nil || a.Zone() != "" {
		return fmt.Errorf("%q is not an IP address", value)
	}
	if !slices.Contains(l.dns, a.String()) {
		l.dns = append(l.dns, a.String())
	}
	return nil
}

// route is <network>/<prefix length>:<router>[:<interface>]; without an interface it is of
// the one in whose network the router is.
func (l *line) route(value string) error {
	f := append(fields(value), "", "")
	to, err := netip.ParsePrefix(f[0])
	if err != nil || to.Addr().Zone() != "" {
		return fmt.Errorf("%q is not a network, as in 198.51.100.0/24", f[0])
	}
	via, err := address(f[1])
	if err != nil {
		return err
	}
	if via.IsValid() && via.Is4() != to.Addr().Is4() {
		return fmt.Errorf("%s is not a router for %s", via, to)
	}
	i := slices.IndexFunc(l.all, func(i spec.Interface) bool {
		return i.Name == f[2] || f[2] == "" && slices.ContainsFunc(i.Addresses, func(a string) bool {
			p, err := netip.ParsePrefix(a)
			return err == nil && via.IsValid() && p.Contains(via)
		})
	})
	if i < 0 {
		return fmt.Errorf("no interface has this router in its network: name it at the end")
	}
	r := spec.Route{To: to.Masked().String()}
	if via.IsValid() {
		r.Via = via.String()
	}
	if !slices.Contains(l.all[i].Routes, r) {
		l.all[i].Routes = append(l.all[i].Routes, r)
	}
	return nil
}

// leaveOut takes away interfaces by which nothing is reached: those without an address,
// DHCP, or another on them. Without any ip=, each that nothing is made of is asked by DHCP.
func (l *line) leaveOut() {
	under := func(name string) bool {
		return slices.ContainsFunc(l.all, func(i spec.Interface) bool { return i.VLAN != nil && i.VLAN.On == name })
	}
	reached := func(i spec.Interface) bool { return len(i.Addresses) > 0 || i.DHCP != "" }
	if !slices.ContainsFunc(l.all, reached) {
		for i := range l.all {
			if !under(l.all[i].Name) {
				l.all[i].DHCP = cmp.Or(l.any, spec.DHCPv4)
			}
		}
	}
	for done := false; !done; {
		before := len(l.all)
		l.all = slices.DeleteFunc(l.all, func(i spec.Interface) bool { return !reached(i) && !under(i.Name) })
		done = len(l.all) == before
	}
	if len(l.all) == 0 {
		l.all = nil
	}
}

// fields splits at colons, but for those between brackets, which are of an IPv6 address.
func fields(value string) (out []string) {
	begin, inside := 0, false
	for i, r := range value {
		switch {
		case r == '[':
			inside = true
		case r == ']':
			inside = false
		case r == ':' && !inside:
			out, begin = append(out, value[begin:i]), i+1
		}
	}
	out = append(out, value[begin:])
	for i := range out {
		out[i] = strings.NewReplacer("[", "", "]", "").Replace(out[i])
	}
	return out
}

func comma(r rune) bool { return r == ',' }

// number reads a number in a range; "" is 0.
func number(text string, least, most int64) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least || n > most {
		return 0, fmt.Errorf("%q is not a number from %d to %d", text, least, most)
	}
	return n, nil
}

// address reads one; "" is none.
func address(text string) (netip.Addr, error) {
	if text == "" {
		return netip.Addr{}, nil
	}
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" || a.IsUnspecified() {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", text)
	}
	return a, nil
}

// methods are the words by which an interface asks for addresses. By IPv6, what
// routers advertise and DHCPv6 are one: the advertisement says which of them it is.
var methods = map[string]string{
	"dhcp": spec.DHCPv4, "on": spec.DHCPv4, "any": spec.DHCPv4, "single-dhcp": spec.DHCPv4,
	"dhcp6": spec.DHCPv6, "auto6": spec.DHCPv6, "either6": spec.DHCPv6,
	"none": "", "off": "", "static": "",
}

// ip is one of
//
//	<method>
//	<interface>:<method>[:<mtu>[:<hardware address>]]
//	<address>:[<peer>]:[<gateway>]:<mask>:[<host>]:[<interface>]:<method>[:<mtu>|:<dns>[:<dns>]]
func (l *line) ip(value string) error {
	f := fields(value)
	switch {
	case len(f) == 1:
		word, known := methods[f[0]]
		if !known || word == "" {
			return fmt.Errorf("%q is not a way to an address: dhcp, dhcp6, auto6 and either6 are", f[0])
		}
		l.any = both(l.any, word)
		return nil
	case len(f) < 5 || methods[f[1]] != "":
		return l.asks(f)
	}
	return l.static(append(f, "", "", "", ""))
}

// asks is the second form.
func (l *line) asks(f []string) error {
	word, known := methods[f[1]]
	if !known || word == "" {
		return fmt.Errorf("%q is not a way to an address: dhcp, dhcp6, auto6 and either6 are", f[1])
	}
	if len(f) > 3 && f[3] != "" {
		l.notes = append(l.notes, fmt.Sprintf("ip=%s: the hardware address is left as it is", strings.Join(f, ":")))
	}
	var mtu int64
	var err error
	if len(f) > 2 {
		if mtu, err = number(f[2], 576, 65535); err != nil {
			return err
		}
	}
	i, err := l.entry(f[0])
	if err != nil {
		return err
	}
	i.DHCP = both(i.DHCP, word)
	if mtu > 0 {
		i.MTU = mtu
	}
	return nil
}

// static is the third form.
func (l *line) static(f []string) error {
	own, err := prefix(f[0], f[3])
	if err != nil {
		return err
	}
	gateway, err := address(f[2])
	if err != nil {
		return err
	}
	if gateway.IsValid() && gateway.Is4() != own.Addr().Is4() {
		return fmt.Errorf("%s is not a router for %s", gateway, own)
	}
	word, known := methods[f[6]]
	if !known && f[6] != "" {
		return fmt.Errorf("%q is not a way to an address: none is, where one is given", f[6])
	}
	name, err := l.only(f[5])
	if err != nil {
		return err
	}
	i, err := l.entry(name)
	if err != nil {
		return err
	}
	if text := own.String(); !slices.Contains(i.Addresses, text) {
		i.Addresses = append(i.Addresses, text)
	}
	if gateway.IsValid() {
		if i.Gateway != "" && i.Gateway != gateway.String() { // an interface has one; the other family's is a route
			i.Routes = append(i.Routes, spec.Route{To: netip.PrefixFrom(gateway, 0).Masked().String(), Via: gateway.String()})
		} else {
			i.Gateway = gateway.String()
		}
	}
	i.DHCP = both(i.DHCP, word)
	if mtu, err := number(f[7], 576, 65535); err == nil {
		i.MTU = max(i.MTU, mtu)
		return nil
	}
	for _, server := range f[7:9] {
		if err := l.nameserver(server); server != "" && err != nil {
			return err
		}
	}
	return nil
}

// only is the interface that is meant where none is named: the one that the machine booted
// by, or the one that there is.
func (l *line) only(name string) (string, error) {
	if name != "" {
		return name, nil
	}
	for card, mac := range l.cards {
		if mac == l.boot || len(l.cards) == 1 {
			return card, nil
		}
	}
	return "", fmt.Errorf("it names none of %d cards", len(l.cards))
}

// prefix reads an address and its mask, which is a prefix length, or an address by IPv4.
func prefix(text, mask string) (netip.Prefix, error) {
	a, err := address(text)
	if err != nil || !a.IsValid() {
		return netip.Prefix{}, fmt.Errorf("%q is not an IP address", text)
	}
	bits, err := strconv.Atoi(mask)
	if m, isAddress := netip.ParseAddr(mask); isAddress == nil && m.Is4() {
		bits, _ = net.IPMask(m.AsSlice()).Size() // 0 of one with holes
		err = nil
	}
	p := netip.PrefixFrom(a, bits)
	if err != nil || !p.IsValid() || bits == 0 {
		return netip.Prefix{}, fmt.Errorf("%q is not the mask of %s", mask, a)
	}
	return p, nil
}

// both joins two words of [spec.Interface.DHCP].
func both(a, b string) string {
	switch {
	case a == "" || a == b:
		return b
	case b == "":
		return a
	}
	return spec.DHCPBoth
}
