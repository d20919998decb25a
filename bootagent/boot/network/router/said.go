// SPDX-License-Identifier: Apache-2.0

package router

import (
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

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
