// SPDX-License-Identifier: Apache-2.0

package httpserver

import (
	"cmp"
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// listener bounds how many connections there are, see [places]. It has the kernel end
// a connection whose other side takes nothing.
//
// That is TCP_USER_TIMEOUT and not a deadline for each write: a deadline for a
// whole answer would punish large images on slow lines, and wrapped writes would
// forgo sendfile(2).
type listener struct {
	net.Listener
	stall  time.Duration
	places *places
}

// Limits that a server has of its own.
const (
	Share          = 8 // one client has an eighth of what there is, at most, where nobody says otherwise
	UsualConns     = 4096
	UsualPerClient = 128
	UsualIdle      = time.Minute
)

// complete returns the options with the usual limits where there are none.
func (o Options) complete() Options {
	o.Stall, o.Idle = cmp.Or(o.Stall, 30*time.Second), cmp.Or(o.Idle, UsualIdle)
	o.Conns = o.Most()
	o.PerClient = cmp.Or(o.PerClient, min(UsualPerClient, max(1, o.Conns/Share)))
	o.Knows = o.Knows || o.UsersFile != "" || o.ClientCA != ""
	return o
}

// filesFor is how many files so many connections take: each may read one, and a server
// has others beside.
func filesFor(conns int) uint64 { return 2*uint64(conns) + 100 }

// Most is how many connections there may be at once: where nobody says, [UsualConns] or
// what this process may have.
func (o Options) Most() int {
	if o.Conns > 0 {
		return o.Conns
	}
	n := UsualConns
	for files, err := maxFiles(); err == nil && n > 16 && filesFor(n) > files; {
		n /= 2
	}
	return n
}

func maxFiles() (uint64, error) {
	var files unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	return files.Max, err
}

// limits says what is wrong with the limits.
func (o Options) limits() error {
	switch conns := o.Most(); {
	case o.Conns < 0 || o.PerClient < 0 || o.Idle < 0:
		return errors.New("a limit of connections is below 0")
	case o.PerClient > conns:
		return fmt.Errorf("%d connections from one address are more than %d in all", o.PerClient, conns)
	}
	files, err := maxFiles()
	if err != nil {
		return fmt.Errorf("how many files may be open: %w", err)
	}
	if need := filesFor(o.Conns); o.Conns > 0 && need > files {
		return fmt.Errorf("%d connections take %d open files, and this process may have %d: ulimit -n, or LimitNOFILE= of "+
			"its unit, allows more", o.Conns, need, files)
	}
	return nil
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		tcp, ok := accepted.(*net.TCPConn)
		if !ok {
			return accepted, nil
		}
		host, _, err := net.SplitHostPort(tcp.RemoteAddr().String())
		c := &conn{TCPConn: tcp, places: l.places, client: Client(host), network: network(host)}
		if err == nil {
			err = l.places.take(c)
		}
		if err != nil {
			_ = tcp.Close() // one too many
			continue
		}
		l.places.waits(c, true)
		l.endStalled(tcp)
		return c, nil
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

// conn gives its places back when it is closed.
type conn struct {
	*net.TCPConn
	places          *places
	client, network string
	stranger        bool
	give            []func()
	once            sync.Once

	at     map[string]*list.Element // by what it waits for a request; under places.mu
	closed bool                     // the same
}

func (c *conn) Close() error {
	c.once.Do(func() {
		c.places.mu.Lock()
		c.closed = true
		c.places.mu.Unlock()
		c.places.waits(c, false)
		c.giveAll()
	})
	return c.TCPConn.Close()
}

func (c *conn) giveAll() {
	for _, give := range c.give {
		give()
	}
}

// under returns the connection that TLS may be spoken on.
func under(c net.Conn) (*conn, bool) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	own, ok := c.(*conn)
	return own, ok
}

// busy ends the wait of a connection whose request is answered: one that is still on
// its way is waited for.
func busy(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if c, ok := req.Context().Value(connKey{}).(*conn); ok {
			c.places.waits(c, false)
		}
		h.ServeHTTP(w, req)
	})
}

// idle has a connection wait for its next request.
func idle(c net.Conn, state http.ConnState) {
	if own, ok := under(c); ok && state == http.StateIdle {
		own.places.waits(own, true)
	}
}

// withConn has requests know their connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if own, ok := under(c); ok {
		return context.WithValue(ctx, connKey{}, own)
	}
	return ctx
}

// Address returns an address by which a browser reaches a service without a proxy: by the
// first name that it was told, or this machine's where it listens on all addresses.
func Address(at *net.TCPAddr, tls bool, told []string) string {
	scheme, name := "http", at.IP.String()
	if tls {
		scheme = "https"
	}
	switch {
	case at.IP.IsLoopback():
	case len(told) > 0:
		name = told[0]
	case at.IP.IsUnspecified():
		name = Names(at, nil)[0]
	}
	if _, _, err := net.SplitHostPort(name); err == nil { // it was told with its port
		return scheme + "://" + name
	}
	return scheme + "://" + net.JoinHostPort(strings.Trim(name, "[]"), strconv.Itoa(at.Port))
}

// Names returns the names by which a service is reached: what it was told, the address
// that it listens on, and on a loopback the names of that.
func Names(at *net.TCPAddr, told []string) []string {
	names := append([]string{}, told...)
	if at.IP.IsUnspecified() {
		if host, err := os.Hostname(); err == nil {
			names = append(names, strings.ToLower(host))
		}
		return append(names, "localhost", "127.0.0.1", "::1")
	}
	names = append(names, at.IP.String())
	if at.IP.IsLoopback() {
		names = append(names, "localhost", "127.0.0.1", "::1")
	}
	return names
}
