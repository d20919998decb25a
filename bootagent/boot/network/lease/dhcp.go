// SPDX-License-Identifier: Apache-2.0

// The servers of a link are asked for an address, by IPv4 (RFC 2131, 4361) and by
// IPv6 (RFC 8415), and their answers are trusted in nothing but their form. The client is known
// by the hardware address of its interface alone, so that the new root is the same one.

package lease

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/caisson-os/caisson/bootagent/record/state"
)

// asked are the options of which the loader makes something, as systemd-networkd does with
// the files of package table, see docs/network.md.
var asked = []dhcpv4.OptionCode{dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer, dhcpv4.OptionHostName,
	dhcpv4.OptionDomainName, dhcpv4.OptionInterfaceMTU, dhcpv4.OptionStaticRoutingTable, dhcpv4.OptionDNSDomainSearchList,
	dhcpv4.OptionClasslessStaticRoute}

// Ask repeats the DHCP exchange until it gets a lease or ctx ends. half is when to ask
// again.
func Ask(ctx context.Context, card net.Interface, within time.Duration) (l *state.Lease, half time.Duration, err error) {
	id := append([]byte{1}, card.HardwareAddr...)
	for {
		ack, err := exchange(ctx, card, id, within)
		if err == nil {
			l, err := parse(card, ack)
			return l, max(ack.IPAddressLeaseTime(time.Hour)/2, time.Second), err
		}
		select {
		case <-ctx.Done():
			return nil, 0, fmt.Errorf("interface %s: no answer to DHCP: %w", card.Name, err)
		case <-time.After(within / 4):
		}
	}
}

func exchange(ctx context.Context, card net.Interface, id []byte, within time.Duration) (*dhcpv4.DHCPv4, error) {
	client, err := nclient4.New(card.Name, nclient4.WithTimeout(within), nclient4.WithRetry(2))
	if err != nil {
		return nil, err
	}
	defer client.Close() // each request has had its answer
	lease, err := client.Request(ctx,
		dhcpv4.WithOption(dhcpv4.OptClientIdentifier(id)),
		dhcpv4.WithRequestedOptions(asked...))
	if err != nil {
		return nil, err
	}
	return lease.ACK, nil
}

// parse takes what the node needs from an answer, and trusts none of it
// beyond its form.
func parse(card net.Interface, ack *dhcpv4.DHCPv4) (*state.Lease, error) {
	ip, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	ones, bits := ack.SubnetMask().Size()
	if !ok || bits != 32 || ones == 0 || ip.IsUnspecified() || ip.IsMulticast() {
		return nil, fmt.Errorf("interface %s: DHCP offers no usable address", card.Name)
	}
	l := &state.Lease{Interface: card.Name, MAC: card.HardwareAddr.String(), Address: netip.PrefixFrom(ip, ones)}
	routes(l, ack)
	if mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, ack.Options); err == nil && mtu >= leastMTU { // or it says none
		l.MTU = uint32(mtu)
	}
	for _, server := range ack.DNS() {
		if addr, ok := netip.AddrFromSlice(server.To4()); ok {
			l.DNS = append(l.DNS, addr)
		}
	}
	if name := ack.DomainName(); plainName(name) {
		l.Domain = name
		l.Search = append(l.Search, name)
	}
	if more := ack.DomainSearch(); more != nil {
		for _, name := range PlainNames(more.Labels) {
			if !slices.Contains(l.Search, name) {
				l.Search = append(l.Search, name)
			}
		}
	}
	if name := ack.HostName(); plainName(name) {
		l.HostName = name
	}
	return l, nil
}

// leastMTU is the smallest with which an interface keeps IPv6.
const leastMTU = 1280

// routes takes those of option 121, beside which options 3 and 33 do not count (RFC 3442), or
// the router of 3 and the routes of 33, to networks of the old classes.
func routes(l *state.Lease, ack *dhcpv4.DHCPv4) {
	given := ack.ClasslessStaticRoute()
	if given == nil {
		if routers := ack.Router(); len(routers) > 0 {
			l.Gateway, _ = netip.AddrFromSlice(routers[0].To4())
		}
		for pair := range slices.Chunk(ack.Options.Get(dhcpv4.OptionStaticRoutingTable), 8) {
			if len(pair) < 8 {
				return
			}
			to, via := netip.AddrFrom4([4]byte(pair)), netip.AddrFrom4([4]byte(pair[4:]))
			ones, _ := net.IP(pair[:4]).DefaultMask().Size()
			if !to.IsUnspecified() && !to.IsMulticast() && !via.IsUnspecified() {
				l.Routes = append(l.Routes, state.LeaseRoute{To: netip.PrefixFrom(to, ones).Masked(), Via: via})
			}
		}
		return
	}
	for _, r := range given {
		to, _ := netip.AddrFromSlice(r.Dest.IP.To4())
		via, _ := netip.AddrFromSlice(r.Router.To4())
		ones, _ := r.Dest.Mask.Size()
		switch {
		case ones == 0 && !via.IsUnspecified():
			if !l.Gateway.IsValid() {
				l.Gateway = via
			}
		case via.IsUnspecified(): // on the link
			l.Routes = append(l.Routes, state.LeaseRoute{To: netip.PrefixFrom(to, ones).Masked()})
		default:
			l.Routes = append(l.Routes, state.LeaseRoute{To: netip.PrefixFrom(to, ones).Masked(), Via: via})
		}
	}
}

// plainName keeps what DHCP says out of files where a newline would begin a
// line of its own.
func plainName(name string) bool {
	return len(name) > 0 && len(name) <= 253 &&
		strings.Trim(strings.ToLower(name), "abcdefghijklmnopqrstuvwxyz0123456789-.") == ""
}

// PlainNames are those of some names that files may have.
func PlainNames(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !plainName(name) })
}

// Resolvers holds a server's answer about names: who resolves them (option 23), and the domains in which
// those without a dot are looked for (24).
type Resolvers struct {
	DNS    []netip.Addr
	Search []string
}

// Address6 asks once for an address, and returns when to ask again, and what resolvers there
// are.
func Address6(ctx context.Context, card net.Interface, within time.Duration) (
	p netip.Prefix, half time.Duration, said Resolvers, err error,
) {
	m, err := exchange6(ctx, card, within, dhcpv6.MessageTypeSolicit)
	if err != nil {
		return p, 0, said, err
	}
	p, half, err = parse6(m)
	return p, half, resolvers(m), err
}

// Resolvers6 asks once for resolvers alone.
func Resolvers6(ctx context.Context, card net.Interface, within time.Duration) (said Resolvers, err error) {
	m, err := exchange6(ctx, card, within, dhcpv6.MessageTypeInformationRequest)
	if err != nil {
		return said, err
	}
	return resolvers(m), nil
}

// exchange6 asks once.
func exchange6(ctx context.Context, card net.Interface, within time.Duration, kind dhcpv6.MessageType) (*dhcpv6.Message, error) {
	client, err := nclient6.New(card.Name, nclient6.WithTimeout(within), nclient6.WithRetry(2))
	if err != nil {
		return nil, err
	}
	defer client.Close() // each request has had its answer
	id := dhcpv6.WithClientID(&dhcpv6.DUIDLL{HWType: iana.HWTypeEthernet, LinkLayerAddr: card.HardwareAddr})
	if kind == dhcpv6.MessageTypeSolicit {
		return client.RapidSolicit(ctx, id)
	}
	m, err := dhcpv6.NewMessage(id, dhcpv6.WithRequestedOptions(dhcpv6.OptionDNSRecursiveNameServer, dhcpv6.OptionDomainSearchList))
	if err != nil {
		return nil, err
	}
	m.MessageType = kind
	m.AddOption(dhcpv6.OptElapsedTime(0))
	return client.SendAndRead(ctx, client.RemoteAddr(), m, nclient6.IsMessageType(dhcpv6.MessageTypeReply))
}

// parse6 takes the address of a reply, and trusts none of it beyond its form.
func parse6(m *dhcpv6.Message) (p netip.Prefix, half time.Duration, err error) {
	ia := m.Options.OneIANA()
	if ia == nil || ia.Options.OneAddress() == nil {
		return p, 0, errors.New("DHCPv6 offers no address")
	}
	a := ia.Options.OneAddress()
	ip, ok := netip.AddrFromSlice(a.IPv6Addr)
	if !ok || !ip.Is6() || ip.Is4In6() || !ip.IsGlobalUnicast() {
		return p, 0, errors.New("DHCPv6 offers no usable address")
	}
	return netip.PrefixFrom(ip, 128), max(a.PreferredLifetime/2, time.Second), nil
}

func resolvers(m *dhcpv6.Message) (said Resolvers) {
	for _, ip := range m.Options.DNS() {
		if a, ok := netip.AddrFromSlice(ip); ok {
			said.DNS = append(said.DNS, a.Unmap())
		}
	}
	if names := m.Options.DomainSearchList(); names != nil {
		said.Search = PlainNames(names.Labels)
	}
	return said
}
