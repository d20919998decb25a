// SPDX-License-Identifier: Apache-2.0

// Package lease asks the servers of a link for addresses, routes and name servers, and hears
// what its routers advertise. It configures nothing. Only bootagent/boot/network imports it.
package lease

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/rfc1035label"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

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
		if err != nil && err != unix.ENOBUFS {
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
