// SPDX-License-Identifier: Apache-2.0

// Package router hears what routers advertise on the links of a machine, of which the
// kernel follows the rest: whether addresses are given by DHCPv6 (RFC 4861), and which
// resolvers there are (RFC 8106). Only bootagent/boot/network imports it.
package router

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Servers are the resolvers that routers advertise (RFC 8106). The kernel passes them on,
// and remembers none.
type Servers struct {
	conn *netlink.Conn // nil where the kernel could not be asked

	mu sync.Mutex
	by map[int][]netip.Addr // by index of the interface
}

// Hear begins to listen, before any interface is up.
func Hear() *Servers {
	s := &Servers{by: map[int][]netip.Addr{}}
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
func (s *Servers) Until(ctx context.Context) {
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
			for _, a := range found {
				if len(s.by[index]) < mostServers && !slices.Contains(s.by[index], a) {
					s.by[index] = append(s.by[index], a)
				}
			}
			s.mu.Unlock()
		}
	}
}

// mostServers is how many resolvers of an interface are kept; resolv.conf(5) has three.
const mostServers = 3

// Of returns those that were heard of on an interface.
func (s *Servers) Of(index int) []netip.Addr {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.by[index])
}

// parseServers reads what the kernel passes on: struct nduseroptmsg, and the option as it
// was on the wire.
func parseServers(data []byte) (index int, found []netip.Addr) {
	const head, option, rdnss = 16, 8, 25
	if len(data) < head+option || data[0] != unix.AF_INET6 || data[head] != rdnss {
		return 0, nil
	}
	index = int(nativeUint32(data[4:]))
	end := min(len(data), head+8*int(data[head+1]))
	if end < head+option {
		return 0, nil // a length of none
	}
	rest := data[head+option : end]
	for ; len(rest) >= 16; rest = rest[16:] {
		if a := netip.AddrFrom16([16]byte(rest)); a.IsGlobalUnicast() && !a.Is4In6() {
			found = append(found, a)
		}
	}
	return index, found
}

func nativeUint32(b []byte) uint32 { return binary.NativeEndian.Uint32(b) }

// What a router has said on an interface, see include/net/if_inet6.h of the kernel.
const (
	Received = 0x20
	Managed  = 0x40
	Other    = 0x80
)

// Said returns these flags of an interface.
func Said(index int) (flags uint32, err error) {
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
