// SPDX-License-Identifier: Apache-2.0

// Package lease asks the servers of a link for addresses, routes and name servers, and hears
// what its routers advertise. It configures nothing. Only bootagent/boot/network imports it.
package lease

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/insomniacslk/dhcp/dhcpv6"
	"github.com/insomniacslk/dhcp/dhcpv6/nclient6"
	"github.com/insomniacslk/dhcp/iana"
	"github.com/insomniacslk/dhcp/rfc1035label"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/internal/stall"
)

// The servers of a link are asked for an address, by IPv4 (RFC 2131, 4361) and by
// IPv6 (RFC 8415), and their answers are trusted in nothing but their form. The client is known
// by the hardware address of its interface alone, so that the new root is the same one.

// asked are the options of which the loader makes something, as systemd-networkd does with
// the files of package table, see docs/network.md.
var asked = []dhcpv4.OptionCode{dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionDomainNameServer, dhcpv4.OptionHostName,
	dhcpv4.OptionDomainName, dhcpv4.OptionInterfaceMTU, dhcpv4.OptionStaticRoutingTable, dhcpv4.OptionDNSDomainSearchList,
	dhcpv4.OptionClasslessStaticRoute}

// Ask repeats the DHCP exchange until it gets a lease or ctx ends. half is when to ask
// again.
func Ask(ctx context.Context, card net.Interface, within time.Duration) (l *record.Lease, half time.Duration, err error) {
	id := append([]byte{1}, card.HardwareAddr...)
	for {
		ack, err := exchange(ctx, card, id, within)
		if err == nil {
			l, err := parse(card, ack)
			return l, max(ack.IPAddressLeaseTime(time.Hour)/2, time.Second), err
		}
		if stall.Rest(ctx, within/4) != nil {
			return nil, 0, fmt.Errorf("interface %s: no answer to DHCP: %w", card.Name, err)
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
func parse(card net.Interface, ack *dhcpv4.DHCPv4) (*record.Lease, error) {
	ip, ok := netip.AddrFromSlice(ack.YourIPAddr.To4())
	ones, bits := ack.SubnetMask().Size()
	if !ok || bits != 32 || ones == 0 || ip.IsUnspecified() || ip.IsMulticast() {
		return nil, fmt.Errorf("interface %s: DHCP offers no usable address", card.Name)
	}
	l := &record.Lease{Interface: card.Name, MAC: card.HardwareAddr.String(), Address: netip.PrefixFrom(ip, ones)}
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
		l.Search = union(l.Search, PlainNames(more.Labels), math.MaxInt)
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
func routes(l *record.Lease, ack *dhcpv4.DHCPv4) {
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
				l.Routes = append(l.Routes, record.LeaseRoute{To: netip.PrefixFrom(to, ones).Masked(), Via: via})
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
			l.Routes = append(l.Routes, record.LeaseRoute{To: netip.PrefixFrom(to, ones).Masked()})
		default:
			l.Routes = append(l.Routes, record.LeaseRoute{To: netip.PrefixFrom(to, ones).Masked(), Via: via})
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

// Advertised are the resolvers and search domains that routers advertise (RFC 8106). The kernel follows
// all else that they advertise, but for [RouterFlags]; these it passes on, and remembers none.
type Advertised struct {
	conn *netlink.Conn // nil where the kernel could not be asked

	mu sync.Mutex
	by map[int]said // by index of the interface
}

type said struct {
	dns    []netip.Addr
	search []string // as the router spells them
}

// HearRouters begins to listen, before any interface is up.
func HearRouters() *Advertised {
	s := &Advertised{by: map[int]said{}}
	if conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil); err == nil {
		if err := conn.JoinGroup(unix.RTNLGRP_ND_USEROPT); err == nil {
			s.conn = conn
		} else {
			_ = conn.Close() // nothing was asked
		}
	}
	return s
}

// Until listens until ctx ends.
func (s *Advertised) Until(ctx context.Context) {
	if s.conn == nil {
		return
	}
	defer s.conn.Close()                                                              // it was only heard
	over := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Now()) }) // what fails ends with the loader
	defer over()
	for ctx.Err() == nil {
		all, err := s.conn.Receive()
		if err != nil && !errors.Is(err, unix.ENOBUFS) { // which says that there was more
			return // ctx has ended
		}
		for _, m := range all {
			index, found := parseServers(m.Data)
			s.mu.Lock()
			is := s.by[index]
			s.by[index] = said{union(is.dns, found.dns, mostServers), union(is.search, found.search, mostDomains)}
			s.mu.Unlock()
		}
	}
}

// How many resolvers and domains of an interface are kept; resolv.conf(5) had three and six.
const (
	mostServers = 3
	mostDomains = 6
)

func union[T comparable](list, more []T, most int) []T {
	for _, one := range more {
		if len(list) < most && !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	return list
}

// Of returns those that were heard of on an interface; a domain is not checked.
func (s *Advertised) Of(index int) (dns []netip.Addr, search []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.by[index].dns), slices.Clone(s.by[index].search)
}

// parseServers reads what the kernel passes on: struct nduseroptmsg, and the option as it
// was on the wire.
func parseServers(data []byte) (index int, found said) {
	const head, option, rdnss, dnssl = 16, 8, 25, 31
	if len(data) < head+option || data[0] != unix.AF_INET6 || data[head] != rdnss && data[head] != dnssl {
		return 0, found
	}
	index = int(nativeUint32(data[4:]))
	end := min(len(data), head+8*int(data[head+1]))
	if end < head+option {
		return 0, found // a length of none
	}
	rest := data[head+option : end]
	if data[head] == dnssl {
		if names, err := rfc1035label.FromBytes(rest); err == nil { // others say nothing
			found.search = slices.DeleteFunc(names.Labels, func(name string) bool { return name == "" }) // what fills up
		}
		return index, found
	}
	for ; len(rest) >= 16; rest = rest[16:] {
		if a := netip.AddrFrom16([16]byte(rest)); a.IsGlobalUnicast() && !a.Is4In6() {
			found.dns = append(found.dns, a)
		}
	}
	return index, found
}

func nativeUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

// What a router has said on an interface, see include/net/if_inet6.h of the kernel.
const (
	FlagReceived = 0x20
	FlagManaged  = 0x40
	FlagOther    = 0x80
)

// RouterFlags returns these flags of an interface. The kernel keeps them, and does not follow them: they
// say whether addresses and the rest are given by DHCPv6 (RFC 4861).
func RouterFlags(index int) (flags uint32, err error) {
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
	if err != nil {
		return 0, err
	}
	defer conn.Close() // each request has had its answer
	ask := make([]byte, unix.SizeofIfInfomsg)
	ask[0] = unix.AF_INET6
	all, err := conn.Execute(netlink.Message{Header: netlink.Header{Type: unix.RTM_GETLINK, Flags: netlink.Request | netlink.Dump}, Data: ask})
	if err != nil {
		return 0, fmt.Errorf("ask for what routers said: %w", err)
	}
	for _, m := range all {
		if len(m.Data) < unix.SizeofIfInfomsg || int(nativeUint32(m.Data[4:])) != index {
			continue
		}
		d, err := netlink.NewAttributeDecoder(m.Data[unix.SizeofIfInfomsg:])
		if err != nil {
			return 0, err
		}
		for d.Next() {
			if d.Type() == unix.IFLA_PROTINFO {
				d.Nested(func(d *netlink.AttributeDecoder) error {
					for d.Next() {
						if d.Type() == unix.IFLA_INET6_FLAGS {
							flags = d.Uint32()
						}
					}
					return d.Err()
				})
			}
		}
		if err := d.Err(); err != nil {
			return 0, err
		}
	}
	return flags, nil
}
