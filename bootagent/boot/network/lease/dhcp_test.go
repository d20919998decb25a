// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"net"
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/caisson-os/caisson/bootagent/record"
)

var card = net.Interface{Name: "eth0", HardwareAddr: net.HardwareAddr{0x52, 0x54, 0, 0, 0, 1}}

func ack(t *testing.T, modifiers ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	t.Helper()
	a, err := dhcpv4.New(modifiers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestParse(t *testing.T) {
	got, err := parse(card, ack(t,
		dhcpv4.WithYourIP(net.IPv4(10, 0, 2, 15)),
		dhcpv4.WithNetmask(net.CIDRMask(24, 32)),
		dhcpv4.WithRouter(net.IPv4(10, 0, 2, 2)),
		dhcpv4.WithDNS(net.IPv4(10, 0, 2, 3)),
		dhcpv4.WithOption(dhcpv4.OptHostName("super\nhost")),
		dhcpv4.WithOption(dhcpv4.OptDomainName("example.org")),
	))
	if err != nil {
		t.Fatal(err)
	}
	want := &record.Lease{
		Interface: "eth0", MAC: "52:54:00:00:00:01",
		Address: netip.MustParsePrefix("10.0.2.15/24"),
		Gateway: netip.MustParseAddr("10.0.2.2"),
		DNS:     []netip.Addr{netip.MustParseAddr("10.0.2.3")},
		Domain:  "example.org", // and no host name: it had a newline
	}
	if got.Address != want.Address || got.Gateway != want.Gateway || got.HostName != "" || got.Domain != want.Domain {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A route without a destination or a router, or half of one, is not taken.
func TestRoutesOfClasses(t *testing.T) {
	got, err := parse(card, ack(t, dhcpv4.WithYourIP(net.IPv4(10, 0, 2, 15)), dhcpv4.WithNetmask(net.CIDRMask(24, 32)),
		dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.OptionStaticRoutingTable, []byte{
			0, 0, 0, 0, 10, 0, 2, 3, 224, 0, 0, 1, 10, 0, 2, 3, 172, 16, 0, 0, 0, 0, 0, 0, 172, 16, 7, 0, 10, 0, 2, 3, 192, 0, 2, 0, 10}))))
	if err != nil || len(got.Routes) != 1 || got.Routes[0].To.String() != "172.16.0.0/16" || got.Routes[0].Via.String() != "10.0.2.3" {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestParseRefusesWhatIsNoAddress(t *testing.T) {
	for name, a := range map[string]*dhcpv4.DHCPv4{
		"no mask":    ack(t, dhcpv4.WithYourIP(net.IPv4(10, 0, 2, 15))),
		"no address": ack(t, dhcpv4.WithNetmask(net.CIDRMask(24, 32))),
		"multicast":  ack(t, dhcpv4.WithYourIP(net.IPv4(224, 0, 0, 1)), dhcpv4.WithNetmask(net.CIDRMask(24, 32))),
		"holed mask": ack(t, dhcpv4.WithYourIP(net.IPv4(10, 0, 2, 15)), dhcpv4.WithNetmask(net.IPMask{255, 0, 255, 0})),
	} {
		if l, err := parse(card, a); err == nil {
			t.Errorf("%s: got %+v", name, l)
		}
	}
}

// FuzzAnswer holds that no answer from the network, however broken, makes the
// loader panic or take a name that could begin a line of its own.
func FuzzAnswer(f *testing.F) {
	a, err := dhcpv4.New(dhcpv4.WithYourIP(net.IPv4(10, 0, 2, 15)), dhcpv4.WithNetmask(net.CIDRMask(24, 32)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(a.ToBytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		packet, err := dhcpv4.FromBytes(data)
		if err != nil {
			return
		}
		l, err := parse(card, packet)
		if err != nil {
			return
		}
		if !l.Address.IsValid() || (l.HostName != "" && !plainName(l.HostName)) || (l.Domain != "" && !plainName(l.Domain)) {
			t.Errorf("took %+v", l)
		}
	})
}
