// SPDX-License-Identifier: Apache-2.0

package dhcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"
	"github.com/insomniacslk/dhcp/iana"
)

// Resolvers are what a server says of names: who knows them (option 23), and the domains in which
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
