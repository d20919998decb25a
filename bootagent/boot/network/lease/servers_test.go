// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/itemtest"
)

// rdnss returns the kernel's message for an advertisement with two resolvers, on interface 7.
func rdnss() []byte {
	data := make([]byte, 16)
	data[0], data[4] = unix.AF_INET6, 7 // of this machine's byte order: tests run on little endian
	data = append(data, 25, 5, 0, 0, 0, 0, 0, 60)
	for _, a := range []string{"2001:db8::53", "ff02::1"} {
		b := netip.MustParseAddr(a).As16()
		data = append(data, b[:]...)
	}
	return data
}

func TestParseServers(t *testing.T) {
	if index, found := parseServers(rdnss()); index != 7 || fmt.Sprint(found.dns) != "[2001:db8::53]" {
		t.Errorf("%d %v", index, found)
	}
}

// Routers are heard after the kernel had more to say of them than there was room for.
func TestOverflow(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	heard := HearRouters()
	if heard.conn == nil {
		t.Fatal("the kernel could not be asked")
	}
	if err := heard.conn.SetReadBuffer(1); err != nil { // the kernel's least
		t.Fatal(err)
	}
	from, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(from) }) // of a test
	say := func(index byte) {
		t.Helper()
		data := rdnss()
		data[4] = index
		message := append([]byte{byte(unix.NLMSG_HDRLEN + len(data)), 0, 0, 0, unix.RTM_NEWNDUSEROPT, 0, 0, 0}, make([]byte, 8)...)
		to := &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: 1 << (unix.RTNLGRP_ND_USEROPT - 1)}
		if err := unix.Sendto(from, append(message, data...), 0, to); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		say(7)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	over := make(chan struct{})
	go func() { defer close(over); heard.Until(ctx) }()
	for dns := 0; dns == 0; {
		select {
		case <-over:
			t.Fatal("it hears no router any more")
		default:
			say(8)
			list, _ := heard.Of(8)
			dns = len(list)
		}
	}
	cancel()
	<-over
	if list, _ := heard.Of(7); len(list) != 1 {
		t.Errorf("of the interface before the overflow it has %v", list)
	}
}

// FuzzServers holds that no advertisement makes the loader panic, or gives a resolver that
// is none.
func FuzzServers(f *testing.F) {
	f.Add(rdnss())
	short := rdnss()
	short[17] = 0 // the length that the option gives of itself, in eights
	f.Add(short)
	f.Fuzz(func(t *testing.T, data []byte) {
		_, found := parseServers(data)
		for _, a := range found.dns {
			if !a.IsGlobalUnicast() {
				t.Errorf("took %s", a)
			}
		}
	})
}
