// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/quota"
)

// listener bounds how many connections there are, in all and from one address:
// what is above is closed at once. It has the kernel end a connection whose other
// side takes nothing.
//
// That is TCP_USER_TIMEOUT and not a deadline for each write: a deadline for a
// whole answer would punish large images on slow lines, and wrapped writes would
// forgo sendfile(2).
type listener struct {
	net.Listener
	stall time.Duration
	conns *quota.Quota // by address
}

func newListener(l net.Listener, o Options) *listener {
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	if o.Conns == 0 {
		o.Conns = 1024
	}
	if o.PerClient == 0 {
		o.PerClient = 128
	}
	return &listener{Listener: l, stall: o.Stall, conns: quota.New(o.Conns, o.PerClient)}
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := c.(*net.TCPConn)
		if !ok {
			return c, nil
		}
		host, _, err := net.SplitHostPort(c.RemoteAddr().String())
		var give func()
		if err == nil {
			give, err = l.conns.Take(Client(host))
		}
		if err != nil {
			_ = c.Close() // one too many
			continue
		}
		l.endStalled(tcp)
		return &conn{TCPConn: tcp, give: give}, nil
	}
}

// Client is by what the holder of an address is counted: of IPv6 its network of 64 bits,
// in which one machine can have as many addresses as it likes.
func Client(address string) string {
	a, err := netip.ParseAddr(address)
	if err != nil || a.Unmap().Is4() {
		return address
	}
	return netip.PrefixFrom(a.WithZone(""), 64).Masked().String()
}

// endStalled sets the time after which the kernel gives up on data that the other
// side does not take. Without it the connection works all the same.
func (l *listener) endStalled(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // the connection works without
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(l.stall.Milliseconds())) // the same
	})
}

// conn gives its place back when it is closed.
type conn struct {
	*net.TCPConn
	give func()
}

func (c *conn) Close() error {
	c.give()
	return c.TCPConn.Close()
}
