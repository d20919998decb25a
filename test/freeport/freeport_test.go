// SPDX-License-Identifier: Apache-2.0

package freeport

import (
	"context"
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// A port that is kept is had by number, again and again, and not by who asks for any.
func TestKeep(t *testing.T) {
	at := Keep(t)
	for range 2 {
		if c, err := net.Dial("tcp", at); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("somebody answers: %v, %v", c, err)
		}
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		c, err := net.Dial("tcp", at)
		if err = errors.Join(err, c.Close(), l.Close()); err != nil {
			t.Error(err)
		}
	}
	_, text, err := net.SplitHostPort(at)
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	// Any port, as long as it is that one.
	only := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) {
			failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_LOCAL_PORT_RANGE, port<<16|port)
		})
		return errors.Join(err, failed)
	}}
	l, err := only.Listen(context.Background(), "tcp4", "127.0.0.1:0")
	switch {
	case errors.Is(err, unix.ENOPROTOOPT):
		t.Skip("the kernel is older than 6.3")
	case err == nil:
		t.Errorf("another one has got %s", l.Addr())
		_ = l.Close() // the test is over
	case !errors.Is(err, unix.EADDRINUSE):
		t.Error(err)
	}
}
