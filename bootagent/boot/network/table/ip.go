// SPDX-License-Identifier: Apache-2.0

package table

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

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
			i.Routes = append(i.Routes, spec.Route{To: everything(gateway), Via: gateway.String()})
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
		bits, err = ones(m.As4())
	}
	p := netip.PrefixFrom(a, bits)
	if err != nil || !p.IsValid() || bits == 0 {
		return netip.Prefix{}, fmt.Errorf("%q is not the mask of %s", mask, a)
	}
	return p, nil
}

func ones(mask [4]byte) (int, error) {
	n := 0
	for ; n < 32 && mask[n/8]&(1<<(7-n%8)) != 0; n++ {
	}
	for i := n; i < 32; i++ {
		if mask[i/8]&(1<<(7-i%8)) != 0 {
			return 0, fmt.Errorf("it has holes")
		}
	}
	return n, nil
}

// everything is the network of a default route.
func everything(a netip.Addr) string {
	if a.Is4() {
		return "0.0.0.0/0"
	}
	return "::/0"
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
