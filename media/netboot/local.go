// SPDX-License-Identifier: Apache-2.0

package netboot

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// localAddress says where a request came in: the answer comes from there. The zero value is not
// known, and the kernel decides.
type localAddress struct {
	ip    netip.Addr
	index int // of the interface
}

// tellDestination has the kernel say with each datagram where it came in.
func tellDestination(conn *net.UDPConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var four, six error
	err = raw.Control(func(fd uintptr) {
		four = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_PKTINFO, 1)
		six = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1)
	})
	if four != nil && six != nil { // one of them a socket has
		err = errors.Join(err, four, six)
	}
	return err
}

// destination reads what [tellDestination] asked for.
func destination(control []byte) localAddress {
	list, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return localAddress{}
	}
	for _, m := range list {
		switch {
		case m.Header.Level == unix.IPPROTO_IP && m.Header.Type == unix.IP_PKTINFO && len(m.Data) >= unix.SizeofInet4Pktinfo:
			// interface, address of the interface, destination: which may be a broadcast
			return localAddress{netip.AddrFrom4([4]byte(m.Data[4:8])), int(binary.NativeEndian.Uint32(m.Data))}
		case m.Header.Level == unix.IPPROTO_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= unix.SizeofInet6Pktinfo:
			return localAddress{netip.AddrFrom16([16]byte(m.Data[:16])).Unmap(), int(binary.NativeEndian.Uint32(m.Data[16:]))}
		}
	}
	return localAddress{}
}

// address is from where to answer.
func (l localAddress) address() *net.UDPAddr {
	if !l.ip.IsValid() || l.ip.IsMulticast() || l.ip.IsUnspecified() || l.ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return nil
	}
	a := &net.UDPAddr{IP: l.ip.AsSlice()}
	if card, err := net.InterfaceByIndex(l.index); err == nil && l.ip.IsLinkLocalUnicast() && l.ip.Is6() {
		a.Zone = card.Name
	}
	return a
}

// room returns how large a block may be, so that no packet to a client is taken apart.
func (l localAddress) room(to netip.AddrPort) int {
	heads := 20 + 8 + 4 // of IP, UDP, TFTP
	if !to.Addr().Unmap().Is4() {
		heads += 20
	}
	mtu := 1280
	if card, err := net.InterfaceByIndex(l.index); err == nil {
		mtu = card.MTU
	}
	return max(usual, min(largest, mtu-heads))
}
