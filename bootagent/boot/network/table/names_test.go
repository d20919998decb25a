// SPDX-License-Identifier: Apache-2.0

package table

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/spec"
)

// TestNames: what the loader has made gets the site's names, and what the site has in
// another way is taken away; where it says nothing of the cards all stays.
func TestNames(t *testing.T) {
	const one, two = "52:54:00:00:00:01", "52:54:00:00:00:02"
	bond := func(name string) spec.Interface {
		return spec.Interface{Name: name, Bond: &spec.Bond{Members: []string{one, two}, Mode: spec.Bond8023AD}}
	}
	vlan := func(name, on string, id int64) spec.Interface {
		return spec.Interface{Name: name, VLAN: &spec.VLAN{ID: id, On: on}, Addresses: []string{"192.0.2.7/24"}}
	}
	boot := Boot{Lease: &record.Lease{Interface: "bond0.100"}, Made: spec.Network{Interfaces: []spec.Interface{bond("bond0"), vlan("bond0.100", "bond0", 100)}}}
	for name, c := range map[string]struct {
		site []spec.Interface
		want map[string]string
	}{
		"nothing":          {nil, map[string]string{}},
		"other cards":      {[]spec.Interface{{MAC: "52:54:00:00:00:03", DHCP: spec.DHCPv4}}, map[string]string{}},
		"the same":         {[]spec.Interface{vlan("bond0.100", "bond0", 100), bond("bond0")}, map[string]string{}},
		"other names":      {[]spec.Interface{bond("uplink"), vlan("storage", "uplink", 100)}, map[string]string{"bond0": "uplink", "bond0.100": "storage"}},
		"another VLAN":     {[]spec.Interface{bond("bond0"), vlan("bond0.101", "bond0", 101)}, map[string]string{"bond0.100": ""}},
		"one of the cards": {[]spec.Interface{{MAC: two, DHCP: spec.DHCPv4}}, map[string]string{"bond0": "", "bond0.100": ""}},
		"a VLAN on a card": {[]spec.Interface{{MAC: one, Name: "a"}, vlan("storage", "a", 100)}, map[string]string{"bond0": "", "bond0.100": ""}},
	} {
		if diff := cmp.Diff(c.want, boot.Names(spec.Network{Interfaces: c.site})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestOnLink: a router in no network of the interface is reached on the link, and a boot does not
// wait for what is optional.
func TestOnLink(t *testing.T) {
	files := NetworkdFiles(spec.Network{Interfaces: []spec.Interface{{Name: "eth0", Optional: true,
		Addresses: []string{"192.0.2.77/32"}, Gateway: "198.51.100.1",
		Routes: []spec.Route{{To: "203.0.113.0/24", Via: "198.51.100.2"}, {To: "203.0.114.0/24", Via: "192.0.2.77", Metric: 700}}}}}, Boot{})
	want := "[Match]\nName=eth0\n\n[Link]\nRequiredForOnline=no\n\n[Network]\nDHCP=no\nAddress=192.0.2.77/32\n" +
		"\n[Route]\nGateway=198.51.100.1\nGatewayOnLink=yes\n" +
		"\n[Route]\nDestination=203.0.113.0/24\nGateway=198.51.100.2\nGatewayOnLink=yes\n\n[Route]\nDestination=203.0.114.0/24\nGateway=192.0.2.77\nMetric=700\n"
	if diff := cmp.Diff(want, files["10-caisson-00.network"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
