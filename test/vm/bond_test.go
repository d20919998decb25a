// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
)

// behindABond makes beta a node behind a bond by LACP with a tagged VLAN and an address
// that nobody gives it.
var behindABond = []string{"machine:\n", `machine:
  overrides:
    hosts:
      - name: beta
        conf:
          network:
            dns: [10.0.2.3]
            interfaces:
              - {name: bond0, bond: {members: ["52:54:00:00:00:0b", "52:54:00:00:01:0b"], mode: 802.3ad, lacpRate: fast, transmitHashPolicy: layer3+4}, mtu: 1450}
              - {name: storage, vlan: {id: 100, on: bond0}, addresses: [10.0.2.15/24], gateway: 10.0.2.2, routes: [{to: 198.51.100.0/24, via: 10.0.2.3, metric: 700}]}
`}

// behind are the options of a machine behind that bond, at a switch that speaks LACP, tags
// all frames, and passes nothing on that asks for an address.
func (s *netSwitch) behind(o machine.Options) machine.Options {
	o.Name, o.MAC, o.MoreMACs, o.Cables = "beta", "52:54:00:00:00:0b", []string{"52:54:00:00:01:0b"}, s.cables
	return o
}

// startLACP starts the switch of a node behind that bond.
func startLACP(t *testing.T) *netSwitch {
	t.Helper()
	return startSwitch(t, 2, &netSwitch{Switch: machine.Switch{VLAN: 100, LACP: true}, deaf: true})
}

// bonds looks at a node behind that bond: the loader had its interfaces from site.cpio, and
// the new root, which is entered meanwhile, takes them over without losing the address.
func (s *netSwitch) bonds(t *testing.T, f *Fleet, m *machine.Machine) *machine.Session {
	t.Helper()
	const mac = "52:54:00:00:00:0b"
	waitFor(t, m, 0, "caisson: network by this node's row in site.cpio")
	waitFor(t, m, 0, "caisson: address 10.0.2.15/24 on storage ("+mac+")")
	to, err := net.ParseMAC(mac)
	if err != nil {
		t.Fatal(err)
	}
	stop := s.pings(t, to, netip.MustParseAddr("10.0.2.15"))
	in := f.login(t, m)
	stop()
	if lost := s.pinged.Load() - s.answered.Load(); lost > 1 || s.answered.Load() < 3 { // one is on its way
		t.Errorf("%d of %d pings had no answer", lost, s.pinged.Load())
	}
	t.Logf("%d pings from before the root was entered, %d answers", s.pinged.Load(), s.answered.Load())
	if strings.Contains(m.Console.String(), "no partner by LACP") {
		t.Error("the loader saw no partner")
	}
	look(t, in,
		Check{"bond by LACP, with a partner", "sudo grep -c 'Partner Mac Address: 02:00:00:00:00:aa' /proc/net/bonding/bond0", "1"},
		Check{"both cards in it", "grep -c 'MII Status: up' /proc/net/bonding/bond0", "3"},
		Check{"hash policy", "sudo grep -o 'Transmit Hash Policy: .*' /proc/net/bonding/bond0", "Transmit Hash Policy: layer3+4 (1)"},
		Check{"address of the first card", "cat /sys/class/net/storage/address", mac},
		Check{"VLAN", "ip -d link show storage | grep -o 'vlan protocol 802.1Q id 100'", "vlan protocol 802.1Q id 100"},
		Check{"MTU", "cat /sys/class/net/bond0/mtu", "1450"},
		Check{"address", "ip -4 -br addr show storage | tr -s ' ' | cut -d' ' -f3", "10.0.2.15/24"},
		Check{"route", "ip route show default", "~default via 10.0.2.2 dev storage proto static"},
		Check{"a route's metric", "ip route show 198.51.100.0/24", "~via 10.0.2.3 dev storage proto static metric 700"},
		Check{"systemd-networkd has taken them over", "networkctl list --no-legend --no-pager bond0 storage | tr -s ' ' | cut -d' ' -f3,5,6 | sort -u", "~configured"},
		Check{"no interface beside those and the cards", "cd /sys/class/net && echo [!e]*/", "bond0/ lo/ storage/"})
	return in
}
