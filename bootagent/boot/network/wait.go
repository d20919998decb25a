// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/jsimonetti/rtnetlink/v2/driver"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
)

// until waits until something is so, or ctx ends: it looks at once, whenever the kernel
// tells of a link, an address, a route or an advertisement, and each second for what it
// tells nobody.
func until(ctx context.Context, isSo func() (bool, error)) error {
	const groups = unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV6_ROUTE | unix.RTMGRP_IPV6_IFINFO
	conn, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{Groups: groups})
	if err != nil {
		return err
	}
	defer conn.Close()                                                              // it was only heard
	over := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) }) // what fails is asked again in a second
	defer over()
	for {
		if is, err := isSo(); is || err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_, err := conn.Receive()
		var late net.Error
		if err != nil && !(errors.As(err, &late) && late.Timeout()) && !errors.Is(err, unix.ENOBUFS) { // which says that there was more
			return err
		}
	}
}

// link asks the kernel for an interface.
func link(name string) (rtnetlink.LinkMessage, error) {
	var m rtnetlink.LinkMessage
	err := with(name, func(conn *rtnetlink.Conn, index uint32) (err error) {
		m, err = conn.Link.Get(index)
		return err
	})
	return m, err
}

// hasCarrier reports whether a partner is at the other end.
func hasCarrier(name string) (bool, error) {
	m, err := link(name)
	return m.Flags&unix.IFF_LOWER_UP != 0, err
}

// carrier waits for the other end of an interface, and of a bond by LACP also for its
// partner: without one, the switch drops what all members but one send, or all of it.
// One that says nothing may be a switch that passes packets until it has heard LACP.
func (s seek) carrier(ctx context.Context, i spec.Interface) error {
	if err := until(ctx, func() (bool, error) { return hasCarrier(i.Name) }); err != nil {
		return err
	}
	bond := i
	if i.VLAN != nil {
		for _, on := range s.Table.Interfaces {
			if on.Name == i.VLAN.On {
				bond = on
			}
		}
	}
	if bond.Bond == nil || bond.Bond.Mode != spec.Bond8023AD {
		return nil
	}
	s.waits(errors.New("no partner by LACP"))
	limit, cancel := context.WithTimeout(ctx, s.lacp)
	defer cancel()
	err := until(limit, func() (bool, error) { return hasPartner(bond.Name) })
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		s.say("bond %s: no partner by LACP in %s, going on without", bond.Name, s.lacp)
		return nil
	}
	return err
}

// hasPartner reports whether a switch has answered by LACP.
func hasPartner(name string) (bool, error) {
	m, err := link(name)
	if err != nil {
		return false, err
	}
	if m.Attributes == nil || m.Attributes.Info == nil {
		return false, fmt.Errorf("interface %s is not a bond", name)
	}
	bond, is := m.Attributes.Info.Data.(*driver.Bond)
	if !is {
		return false, fmt.Errorf("interface %s is not a bond", name)
	}
	if bond.AdInfo == nil {
		return false, nil
	}
	for _, b := range bond.AdInfo.PartnerMac {
		if b != 0 {
			return true, nil
		}
	}
	return false, nil
}
