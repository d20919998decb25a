// SPDX-License-Identifier: Apache-2.0

// Package freeport keeps ports for programs that are given one before they run, as where others
// ask them is written down first. One that was only free a moment ago may be another's by then.
// Only tests import it.
package freeport

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// Keep keeps a port until the test ends, and returns its address.
func Keep(t testing.TB) (address string) {
	t.Helper()
	address, release, err := Hold()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return address
}

// Hold keeps a port of 127.0.0.1 until release is called. It is bound, so that the kernel gives it to
// nobody who asks for any, and not listened at, so that who asks for it by its number and sets
// SO_REUSEADDR, as net.Listen does, gets it; see ip(7). Until then nobody answers there.
func Hold() (address string, release func(), err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, fmt.Errorf("hold a port: %w", err)
	}
	release = func() { _ = unix.Close(fd) } // nothing was written
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	}
	var at unix.Sockaddr
	if err == nil {
		at, err = unix.Getsockname(fd)
	}
	if err != nil {
		release()
		return "", nil, fmt.Errorf("hold a port: %w", err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(at.(*unix.SockaddrInet4).Port)), release, nil
}
