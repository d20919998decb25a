// SPDX-License-Identifier: Apache-2.0

package watch

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// socket is a netlink socket whose messages are hints; what they say decides at most
// which kinds.
type socket struct {
	number int
	kinds  func(message []byte) []string
}

func (s *socket) fd() int { return s.number }
func (s *socket) close()  { unix.Close(s.number) } // only read

// most bounds how many messages are read at once: a storm keeps nobody waiting.
const most = 256

func (s *socket) drain() (kinds []string, lost bool) {
	buffer := make([]byte, 16<<10)
	for range most {
		n, _, err := unix.Recvfrom(s.number, buffer, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			return kinds, lost
		case errors.Is(err, unix.EINTR):
		case err != nil: // ENOBUFS: the kernel had more than there was room for
			return kinds, true
		default:
			kinds = append(kinds, s.kinds(buffer[:n])...)
		}
	}
	return kinds, lost
}

// listen opens a netlink socket and joins a group by its number.
func listen(family int, group uint32, kinds func([]byte) []string) (source, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, family)
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, int(group))
	}
	if err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return &socket{fd, kinds}, nil
}

func newRtnetlink(*Watch) (source, error) {
	return listen(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, func([]byte) []string { return kindsOf(Rtnetlink) })
}

// newUevent listens to the kernel's own messages: group 1, of which each begins with
// ACTION@PATH and has NAME=value pairs after zeros.
func newUevent(*Watch) (source, error) {
	return listen(unix.NETLINK_KOBJECT_UEVENT, 1, func(message []byte) []string {
		for field := range bytes.SplitSeq(message, []byte{0}) {
			if name, ok := bytes.CutPrefix(field, []byte("SUBSYSTEM=")); ok {
				return kindsOfDevice(string(name))
			}
		}
		return nil
	})
}

// newEthtool listens to the group in which the kernel tells of settings of interfaces,
// whichever way they were changed.
func newEthtool(*Watch) (source, error) {
	group, err := ethtoolGroup()
	if err != nil {
		return nil, err
	}
	return listen(unix.NETLINK_GENERIC, group, func([]byte) []string { return kindsOf(Ethtool) })
}

// ethtoolGroup asks generic netlink for the number of the group.
func ethtoolGroup() (uint32, error) {
	c, err := netlink.Dial(unix.NETLINK_GENERIC, nil)
	if err != nil {
		return 0, err
	}
	defer c.Close() // the answer is there
	attributes := netlink.NewAttributeEncoder()
	attributes.String(unix.CTRL_ATTR_FAMILY_NAME, unix.ETHTOOL_GENL_NAME)
	data, err := attributes.Encode()
	if err != nil {
		return 0, err
	}
	header := []byte{unix.CTRL_CMD_GETFAMILY, 1, 0, 0}
	answers, err := c.Execute(netlink.Message{Header: netlink.Header{Type: unix.GENL_ID_CTRL,
		Flags: netlink.Request | netlink.Acknowledge}, Data: append(header, data...)})
	if err != nil {
		return 0, fmt.Errorf("ask for netlink's %s: %w", unix.ETHTOOL_GENL_NAME, err)
	}
	for _, a := range answers {
		if group := monitorGroup(a.Data); group != 0 {
			return group, nil
		}
	}
	return 0, errors.New("the kernel's ethtool has no group " + unix.ETHTOOL_MCGRP_MONITOR_NAME)
}

// monitorGroup finds the number in a description of the family, 0 where it is not.
func monitorGroup(description []byte) (group uint32) {
	if len(description) < 4 {
		return 0
	}
	family, err := netlink.NewAttributeDecoder(description[4:])
	if err != nil {
		return 0
	}
	for family.Next() {
		if family.Type() != unix.CTRL_ATTR_MCAST_GROUPS {
			continue
		}
		family.Nested(func(groups *netlink.AttributeDecoder) error {
			for groups.Next() {
				groups.Nested(func(one *netlink.AttributeDecoder) error {
					var name string
					var id uint32
					for one.Next() {
						switch one.Type() {
						case unix.CTRL_ATTR_MCAST_GRP_NAME:
							name = one.String()
						case unix.CTRL_ATTR_MCAST_GRP_ID:
							id = one.Uint32()
						}
					}
					if name == unix.ETHTOOL_MCGRP_MONITOR_NAME {
						group = id
					}
					return nil
				})
			}
			return nil
		})
	}
	if family.Err() != nil {
		return 0
	}
	return group
}
