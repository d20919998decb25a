// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
)

// TestBondAndVLAN: a bond of two cards, of which the loader used one, with a VLAN on it
// and one on a card that nothing else is said of.
func TestBondAndVLAN(t *testing.T) {
	n := newNode(t, t.TempDir(), false)
	n.Overlay.Network.Interfaces = []spec.Interface{
		{Name: "bond0", Bond: &spec.Bond{Members: []string{n.Network.Lease.MAC, "52:54:00:00:00:02"}, Mode: spec.Bond8023AD, LACPRate: spec.LACPFast, MinLinks: 1, HashPolicy: "layer3+4"}, MTU: 9000},
		{Name: "storage", VLAN: &spec.VLAN{ID: 100, On: "bond0"}, Addresses: []string{"192.0.2.11/24", "2001:db8::11/64"}, Gateway: "192.0.2.1",
			Routes: []spec.Route{{To: "198.51.100.0/24", Via: "192.0.2.254"}, {To: "203.0.113.0/24"}}},
		{MAC: "52:54:00:00:00:03", Name: "out"},
		{Name: "tenant", VLAN: &spec.VLAN{ID: 7, On: "out"}, DHCP: spec.DHCPBoth},
	}
	n.Overlay.Network.Interfaces[0].Bond.Primary = "52:54:00:00:00:02"
	read := do(t, n)
	const shared = ""
	want := map[string]string{
		"00.netdev":          "[NetDev]\nName=bond0\nKind=bond\nMACAddress=52:54:00:00:00:01\n\n[Bond]\nMode=802.3ad\nMIIMonitorSec=100ms\nLACPTransmitRate=fast\nMinLinks=1\nTransmitHashPolicy=layer3+4\n",
		"00.network":         "[Match]\nName=bond0\n\n[Link]\nMTUBytes=9000\nRequiredForOnline=no\n\n[Network]\nDHCP=no\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nVLAN=storage\n" + shared,
		"00-member0.network": "[Match]\nPermanentMACAddress=" + n.Network.Lease.MAC + "\nKind=!*\n\n[Link]\nRequiredForOnline=no\n\n[Network]\nBond=bond0\n",
		"00-member1.network": "[Match]\nPermanentMACAddress=52:54:00:00:00:02\nKind=!*\n\n[Link]\nRequiredForOnline=no\n\n[Network]\nBond=bond0\nPrimarySlave=yes\n",
		"01.netdev":          "[NetDev]\nName=storage\nKind=vlan\n\n[VLAN]\nId=100\n",
		"01.network": "[Match]\nName=storage\n\n[Network]\nDHCP=no\nAddress=192.0.2.11/24\nAddress=2001:db8::11/64\nGateway=192.0.2.1\n" + shared +
			"\n[Route]\nDestination=198.51.100.0/24\nGateway=192.0.2.254\n\n[Route]\nDestination=203.0.113.0/24\n",
		"02.network": "[Match]\nMACAddress=52:54:00:00:00:03\nKind=!*\n\n[Link]\nRequiredForOnline=no\n\n[Network]\nDHCP=no\nLinkLocalAddressing=no\nIPv6AcceptRA=no\nVLAN=tenant\n" + shared,
		"03.netdev":  "[NetDev]\nName=tenant\nKind=vlan\n\n[VLAN]\nId=7\n",
		"03.network": "[Match]\nName=tenant\n\n[Network]\nDHCP=yes\n" + shared + "\n[DHCPv4]\nClientIdentifier=mac\nUseHostname=no\nUseDomains=yes\nUseMTU=yes\n\n[DHCPv6]\nDUIDType=link-layer\nIAID=3\n",
	}
	var names []string
	for name, text := range want {
		names = append(names, "10-caisson-"+name)
		if diff := cmp.Diff(text, read("etc/systemd/network/10-caisson-"+name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	slices.Sort(names)
	entries, err := os.ReadDir(filepath.Join(n.Root, "etc/systemd/network"))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if diff := cmp.Diff(names, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestLeaseOfTheSite: a card that the site gives DHCP keeps what the loader got by it.
func TestLeaseOfTheSite(t *testing.T) {
	for name, match := range map[string]spec.Interface{"mac": {MAC: "the lease's"}, "name": {Name: "the lease's"}} {
		n := newNode(t, t.TempDir(), false)
		match.DHCP = spec.DHCPv4
		if match.MAC != "" {
			match.MAC = n.Network.Lease.MAC
		} else {
			match.Name = n.Network.Lease.Interface
		}
		n.Overlay.Network.Interfaces = []spec.Interface{match}
		read := do(t, n)
		got, line := read("etc/systemd/network/10-caisson-00.network"), "KeepConfiguration=dhcp\n"
		if !strings.Contains(got, "DHCP=ipv4\n") || !strings.Contains(got, line) {
			t.Errorf("by %s: lacks %q:\n%s", name, line, got)
		}
		if n.exists("/etc/systemd/network/20-caisson-boot.network") {
			t.Errorf("by %s: the card has two files", name)
		}
	}
}
