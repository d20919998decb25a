// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sys/unix"
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
	stall           time.Duration
	conns, perOther int

	mu    sync.Mutex
	total int
	from  map[string]int // by address
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
	return &listener{Listener: l, stall: o.Stall, conns: o.Conns, perOther: o.PerClient, from: map[string]int{}}
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
		client := Client(host)
		if err != nil || !l.take(client) {
			_ = c.Close() // one too many
			continue
		}
		l.endStalled(tcp)
		return &conn{TCPConn: tcp, give: sync.OnceFunc(func() { l.give(client) })}, nil
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

func (l *listener) take(host string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.total >= l.conns || l.from[host] >= l.perOther {
		return false
	}
	l.total++
	l.from[host]++
	return true
}

func (l *listener) give(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total--
	if l.from[host]--; l.from[host] == 0 {
		delete(l.from, host)
	}
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
