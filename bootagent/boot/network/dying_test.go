// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/jsimonetti/rtnetlink/v2"

	"github.com/caisson-os/caisson/bootagent/boot/network/lease"
	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// TestADHCPServerThatDies: a server dies between its offer and the lease. Where it comes
// back, or another does, the card has its lease; else the wait has its end.
func TestADHCPServerThatDies(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	ip(t, "link", "add", "client", "type", "veth", "peer", "name", "server")
	ip(t, "addr", "add", "192.0.2.1/24", "dev", "server")
	ip(t, "link", "set", "server", "up")
	var offers, requests atomic.Int32
	var dead atomic.Bool // for good
	us := net.IPv4(192, 0, 2, 1)
	s, err := server4.NewServer("server", nil, func(conn net.PacketConn, peer net.Addr, m *dhcpv4.DHCPv4) {
		kind := dhcpv4.MessageTypeOffer
		if m.MessageType() == dhcpv4.MessageTypeRequest {
			if kind = dhcpv4.MessageTypeAck; requests.Add(1) <= 3 || dead.Load() {
				return // it has died: all that this client asks within one exchange stays without an answer
			}
		} else {
			offers.Add(1)
		}
		answers(t, conn, m, dhcpv4.WithMessageType(kind), dhcpv4.WithServerIP(us), dhcpv4.WithYourIP(net.IPv4(192, 0, 2, 9)),
			dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(us)), dhcpv4.WithLeaseTime(60))
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve()    // until it is closed
	defer s.Close() // with the namespace
	card, err := net.InterfaceByName("client")
	if err != nil {
		t.Fatal(err)
	}
	setLinkUp(t, card)
	const within = 100 * time.Millisecond // a loaded machine that takes longer asks more often
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	got, _, err := lease.Ask(ctx, *card, within)
	if err != nil || got.Address.String() != "192.0.2.9/24" || offers.Load() < 2 || requests.Load() < 4 {
		t.Errorf("%+v, %v after %d offers and %d requests", got, err, offers.Load(), requests.Load())
	}
	dead.Store(true)
	ctx, cancel = context.WithTimeout(t.Context(), 10*within)
	defer cancel()
	begun := time.Now()
	if got, _, err := lease.Ask(ctx, *card, within); err == nil || time.Since(begun) > 5*time.Minute {
		t.Errorf("%+v, %v after %s", got, err, time.Since(begun))
	}
}

// TestALeaseIsKept: a loader that waits for its registry asks again for its address before
// the lease is over, more than once, and takes another where it is given one.
func TestALeaseIsKept(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	ip(t, "link", "add", "client", "address", "52:54:00:00:00:01", "type", "veth", "peer", "name", "server")
	ip(t, "addr", "add", "192.0.2.1/24", "dev", "server")
	ip(t, "link", "set", "server", "up")
	var leases, last atomic.Int32
	last.Store(9)
	us := net.IPv4(192, 0, 2, 1)
	s, err := server4.NewServer("server", nil, func(conn net.PacketConn, peer net.Addr, m *dhcpv4.DHCPv4) {
		kind := dhcpv4.MessageTypeOffer
		if m.MessageType() == dhcpv4.MessageTypeRequest {
			kind = dhcpv4.MessageTypeAck
			leases.Add(1)
		}
		answers(t, conn, m, dhcpv4.WithMessageType(kind), dhcpv4.WithServerIP(us), dhcpv4.WithYourIP(net.IPv4(192, 0, 2, byte(last.Load()))),
			dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(us)), dhcpv4.WithLeaseTime(2))
	})
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve()    // until it is closed
	defer s.Close() // with the namespace
	n := started(t, table.Table{Any: spec.DHCPv4}, wire{Card: table.Card{Name: "client", MAC: "52:54:00:00:00:01"}})
	first := comes(t, n, on("client"))
	if first.Address.String() != "192.0.2.9/24" {
		t.Errorf("%+v", first)
	}
	comes(t, n, func(*record.Lease) bool { return leases.Load() >= 3 })
	if got := ip(t, "-4", "addr", "show", "client"); strings.Count(got, "inet ") != 1 || !strings.Contains(got, "192.0.2.9/24") {
		t.Errorf("after two renewals: %s", got)
	}
	last.Store(10)
	comes(t, n, func(l *record.Lease) bool { return l.Address.String() == "192.0.2.10/24" })
	if got := ip(t, "-4", "addr", "show", "client"); strings.Count(got, "inet ") != 1 || !strings.Contains(got, "192.0.2.10/24") {
		t.Errorf("after another address: %s", got)
	}
}

func setLinkUp(t *testing.T, card *net.Interface) {
	t.Helper()
	conn, err := rtnetlink.Dial(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close() // each request has had its answer
	if err := linkUp(conn, uint32(card.Index)); err != nil {
		t.Fatal(err)
	}
}

// answers sends what a server has to say to everybody on the link.
func answers(t *testing.T, conn net.PacketConn, m *dhcpv4.DHCPv4, with ...dhcpv4.Modifier) {
	answer, err := dhcpv4.NewReplyFromRequest(m, with...)
	if err == nil {
		_, err = conn.WriteTo(answer.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 68})
	}
	if err != nil {
		t.Errorf("answer: %v", err)
	}
}
