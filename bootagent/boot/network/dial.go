// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record/state"
)

// Dial returns a function that connects by one way and no other, and asks the resolvers of
// that way for names, one without a dot in its domains first: what another network says of
// them is another's.
func Dial(l *state.Lease, silence time.Duration) func(ctx context.Context, network, address string) (net.Conn, error) {
	bind := func(_, _ string, c syscall.RawConn) error {
		var bound error
		err := c.Control(func(fd uintptr) { bound = unix.BindToDevice(int(fd), l.Interface) })
		return errors.Join(err, bound)
	}
	var turn atomic.Uint32
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		if len(l.DNS) == 0 {
			return nil, errors.New("no resolver is known on interface " + l.Interface)
		}
		server := l.DNS[int(turn.Add(1)-1)%len(l.DNS)]
		d := net.Dialer{Timeout: silence, Control: bind}
		return d.DialContext(ctx, network, netip.AddrPortFrom(server, 53).String())
	}}
	d := net.Dialer{Timeout: silence, Control: bind, Resolver: resolver}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if host, port, err := net.SplitHostPort(address); err == nil && !strings.ContainsAny(host, ".:") {
			for _, domain := range l.Search {
				conn, err := d.DialContext(ctx, network, net.JoinHostPort(host+"."+domain+".", port))
				if no := new(net.DNSError); !errors.As(err, &no) || no.IsTimeout {
					return conn, err
				}
			}
		}
		return d.DialContext(ctx, network, address)
	}
}
