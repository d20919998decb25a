// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"fmt"
	"net"

	"github.com/jsimonetti/rtnetlink/v2"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/spec"
)

// Rename gives interfaces other names, and takes away those whose new name is "". The way
// over them is returned as it is then. The kernel wants an interface down for that and
// forgets its routes, so what it had is given to it again.
func (n *Network) Rename(l *state.Lease, names map[string]string) (*state.Lease, error) {
	if len(names) == 0 {
		return l, nil
	}
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		return l, err
	}
	defer conn.Close() // each request has had its answer
	own := n.Under(l).Interfaces
	for _, i := range own {
		name, other := names[i.Name]
		card, err := net.InterfaceByName(i.Name)
		switch {
		case err != nil || !other:
		case name == "":
			err = conn.Link.Delete(uint32(card.Index))
		default:
			err = conn.Link.Set(&rtnetlink.LinkMessage{Index: uint32(card.Index), Change: unix.IFF_UP})
			if err == nil {
				err = conn.Link.Set(&rtnetlink.LinkMessage{Index: uint32(card.Index), Attributes: &rtnetlink.LinkAttributes{Name: name}})
			}
		}
		if err != nil {
			return l, fmt.Errorf("interface %s becomes %q: %w", i.Name, name, err)
		}
	}
	moved := *l
	moved.Interface = after(names, l.Interface)
	for at := range n.Table.Interfaces {
		i := &n.Table.Interfaces[at]
		if i.VLAN != nil {
			i.VLAN = &spec.VLAN{ID: i.VLAN.ID, On: after(names, i.VLAN.On)}
		}
		i.Name = after(names, i.Name)
	}
	if names[l.Interface] == "" && moved.Interface == "" {
		return l, nil // the new root makes another way
	}
	return &moved, n.again(conn, &moved)
}

// after returns the name of an interface after the renaming.
func after(names map[string]string, name string) string {
	if other, is := names[name]; is {
		return other
	}
	return name
}

// again brings what is below a way up and gives it what it had.
func (n *Network) again(conn *rtnetlink.Conn, l *state.Lease) error {
	for _, i := range n.Under(l).Interfaces {
		if err := errors.Join(setUp(conn, i), give(i), giveRoutes(i)); err != nil {
			return fmt.Errorf("interface %s: %w", i.Name, err)
		}
	}
	if l.Static {
		return nil
	}
	return configure(l, unix.RTPROT_DHCP, 1024)
}
