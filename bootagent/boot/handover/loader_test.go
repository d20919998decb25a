// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"net/netip"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/spec"
)

const one, two = "52:54:00:00:00:01", "52:54:00:00:00:02"

// bonded is a loader's way over a bond with a tagged VLAN.
func bonded(n *Node) {
	n.Network.Lease = &record.Lease{Interface: "bond0.100", MAC: one, Static: true, Address: netip.MustParsePrefix("192.0.2.11/24"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")}}
	n.Network.Made = spec.Network{DNS: []string{"192.0.2.53"}, Interfaces: []spec.Interface{
		{Name: "bond0", Bond: &spec.Bond{Members: []string{one, two}, Mode: spec.Bond8023AD}, MTU: 9000},
		{Name: "bond0.100", VLAN: &spec.VLAN{ID: 100, On: "bond0"}, Addresses: []string{"192.0.2.11/24"}, Gateway: "192.0.2.1"}}}
}

// TestTheLoadersNetworkStays: where the site says nothing of the loader's cards, the new root
// has what the loader made, to the letter.
func TestTheLoadersNetworkStays(t *testing.T) {
	n := newNode(t, t.TempDir(), false)
	n.Overlay.Network = spec.Network{Interfaces: []spec.Interface{{MAC: "52:54:00:00:00:09", DHCP: spec.DHCPv4}}}
	bonded(n)
	read := do(t, n)
	for name, want := range map[string]string{
		"20-caisson-boot-00.netdev":          "[NetDev]\nName=bond0\nKind=bond\nMACAddress=" + one + "\n\n[Bond]\nMode=802.3ad\nMIIMonitorSec=100ms\n",
		"20-caisson-boot-00.network":         "[Match]\nName=bond0\n\n[Link]\nMTUBytes=9000\nRequiredForOnline=no\n\n[Network]\nDHCP=no\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nVLAN=bond0.100\nDNS=192.0.2.53\n",
		"20-caisson-boot-00-member0.network": member(one),
		"20-caisson-boot-00-member1.network": member(two),
		"20-caisson-boot.netdev":             "[NetDev]\nName=bond0.100\nKind=vlan\n\n[VLAN]\nId=100\n",
		"20-caisson-boot.network":            "[Match]\nName=bond0.100\n\n[Network]\nDHCP=no\nAddress=192.0.2.11/24\nGateway=192.0.2.1\nDNS=192.0.2.53\n",
	} {
		if got := read("etc/systemd/network/" + name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

// TestTheSitesNetworkCounts: where the site says how one of the loader's cards is used, it
// says so of all, and what it makes of them in the same way keeps the loader's address.
func TestTheSitesNetworkCounts(t *testing.T) {
	bond := spec.Interface{Name: "uplink", Bond: &spec.Bond{Members: []string{two, "52:54:00:00:00:03"}, Mode: spec.Bond8023AD}}
	tagged := func(id int64) spec.Interface {
		return spec.Interface{Name: "storage", VLAN: &spec.VLAN{ID: id, On: "uplink"}, DHCP: spec.DHCPv4}
	}
	for name, c := range map[string]struct {
		site  []spec.Interface
		keeps string // which of the site's keeps what the loader has by DHCP
	}{
		"the same":         {[]spec.Interface{bond, tagged(100)}, "01"},
		"another VLAN":     {[]spec.Interface{bond, tagged(101)}, ""},
		"the bond itself":  {[]spec.Interface{{Name: "uplink", Bond: bond.Bond, DHCP: spec.DHCPv4}}, ""},
		"one of the cards": {[]spec.Interface{{MAC: one, DHCP: spec.DHCPv4}}, ""},
	} {
		n := newNode(t, t.TempDir(), false)
		bonded(n)
		n.Overlay.Network = spec.Network{Interfaces: c.site}
		read := do(t, n)
		if found, err := filepath.Glob(n.path("/etc/systemd/network/20-*")); err != nil || found != nil {
			t.Errorf("%s: there are %v, %v", name, found, err)
		}
		keeps := ""
		for _, file := range []string{"00", "01"} {
			name := "/etc/systemd/network/10-caisson-" + file + ".network"
			if n.exists(name) && strings.Contains(read(name), "KeepConfiguration=dhcp\n") {
				keeps += file
			}
		}
		if keeps != c.keeps {
			t.Errorf("%s: %q keeps the lease, want %q", name, keeps, c.keeps)
		}
	}
}

func member(mac string) string {
	return "[Match]\nPermanentMACAddress=" + mac + "\nKind=!*\n\n[Link]\nRequiredForOnline=no\n\n[Network]\nBond=bond0\n"
}
