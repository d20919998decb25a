// SPDX-License-Identifier: Apache-2.0

package table

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

var cards = map[string]string{"eth0": "52:54:00:00:00:01", "eth1": "52:54:00:00:00:02"}

func TestParse(t *testing.T) {
	eth0 := spec.Interface{Name: "eth0", MAC: cards["eth0"]}
	with := func(i spec.Interface, change func(*spec.Interface)) spec.Interface { change(&i); return i }
	bond := func(mode string, change func(*spec.Interface)) spec.Interface {
		return with(spec.Interface{Name: "bond0", Bond: &spec.Bond{Members: []string{cards["eth0"], cards["eth1"]}, Mode: mode}}, change)
	}
	for line, want := range map[string]struct {
		all   []spec.Interface
		dns   []string
		any   string
		notes string
	}{
		"quiet console=ttyS0": {},
		"ip=dhcp":             {any: spec.DHCPv4},
		"ip=dhcp6 ip=dhcp":    {any: spec.DHCPBoth},
		"ip=eth0:auto6":       {all: []spec.Interface{with(eth0, func(i *spec.Interface) { i.DHCP = spec.DHCPv6 })}},
		"ip=eth0:dhcp:9000":   {all: []spec.Interface{with(eth0, func(i *spec.Interface) { i.DHCP, i.MTU = spec.DHCPv4, 9000 })}},
		"ip=eth0:on:1500:52:54:00:00:00:09": {notes: "the hardware address is left as it is",
			all: []spec.Interface{with(eth0, func(i *spec.Interface) { i.DHCP, i.MTU = spec.DHCPv4, 1500 })}},
		"ip=192.0.2.7::192.0.2.1:255.255.255.0:n1:eth0:none nameserver=192.0.2.53 nameserver=[2001:db8::53]": {
			all: []spec.Interface{with(eth0, func(i *spec.Interface) { i.Addresses, i.Gateway = []string{"192.0.2.7/24"}, "192.0.2.1" })},
			dns: []string{"192.0.2.53", "2001:db8::53"}},
		"ip=192.0.2.7:::24::eth0:none:192.0.2.53:192.0.2.54": {
			all: []spec.Interface{with(eth0, func(i *spec.Interface) { i.Addresses = []string{"192.0.2.7/24"} })}, dns: []string{"192.0.2.53", "192.0.2.54"}},
		"ip=192.0.2.7::192.0.2.1:24::eth0:none:9000 ip=[2001:db8::7]::[2001:db8::1]:64::eth0:none": {
			all: []spec.Interface{with(eth0, func(i *spec.Interface) {
				i.Addresses, i.Gateway, i.MTU = []string{"192.0.2.7/24", "2001:db8::7/64"}, "192.0.2.1", 9000
				i.Routes = []spec.Route{{To: "::/0", Via: "2001:db8::1"}}
			})}},
		"bond=bond0:eth0,eth1:mode=4,lacp_rate=fast,min_links=1,miimon=100:9000 vlan=bond0.100:bond0 ip=192.0.2.11::192.0.2.1:24::bond0.100:none rd.route=198.51.100.0/24:192.0.2.254": {
			all: []spec.Interface{
				bond(spec.Bond8023AD, func(i *spec.Interface) { i.MTU, i.Bond.LACPRate, i.Bond.MinLinks = 9000, spec.LACPFast, 1 }),
				{Name: "bond0.100", VLAN: &spec.VLAN{ID: 100, On: "bond0"}, Addresses: []string{"192.0.2.11/24"}, Gateway: "192.0.2.1",
					Routes: []spec.Route{{To: "198.51.100.0/24", Via: "192.0.2.254"}}}}},
		"bond=bond0:eth0,eth1:mode=2,xmit_hash_policy=1": {all: []spec.Interface{
			bond("balance-xor", func(i *spec.Interface) { i.DHCP, i.Bond.HashPolicy = spec.DHCPv4, "layer3+4" })}},
		"bond=bond0:eth0,eth1:mode=802.3ad,xmit_hash_policy=encap2+3": {all: []spec.Interface{
			bond(spec.Bond8023AD, func(i *spec.Interface) { i.DHCP, i.Bond.HashPolicy = spec.DHCPv4, "encap2+3" })}},
		"bond=bond0:eth0,eth1:xmit_hash_policy=5": {notes: `a bond has no hash policy "5"`},
		"bond":                {all: []spec.Interface{bond("balance-rr", func(i *spec.Interface) { i.DHCP = spec.DHCPv4 })}},
		"bond=bond0 ip=dhcp6": {any: spec.DHCPv6, all: []spec.Interface{bond("balance-rr", func(i *spec.Interface) { i.DHCP = spec.DHCPv6 })}},
		"vlan=vlan0005:eth0": {all: []spec.Interface{eth0,
			{Name: "vlan0005", VLAN: &spec.VLAN{ID: 5, On: "eth0"}, DHCP: spec.DHCPv4}}},
		"ifname=up:52:54:00:00:00:02 ip=up:dhcp": {all: []spec.Interface{{Name: "up", MAC: cards["eth1"], DHCP: spec.DHCPv4}}},
		`"ip=eth0:dhcp" ip="eth0:dhcp"`:          {all: []spec.Interface{with(eth0, func(i *spec.Interface) { i.DHCP = spec.DHCPv4 })}},

		"ip=ibft":                               {notes: `"ibft" is not a way to an address`},
		"ip=ens3:dhcp":                          {notes: `there is no interface "ens3"; cards are eth0, eth1`},
		"ip=192.0.2.7:::24:::none":              {notes: "it names none of 2 cards"},
		"ip=192.0.2.7:::255.0.255.0::eth0:none": {notes: `"255.0.255.0" is not the mask of 192.0.2.7`},
		"ip=192.0.2.7:::24::eth0:iscsi":         {notes: `"iscsi" is not a way to an address`},
		"ip=192.0.2.7::2001:24::eth0:none":      {notes: `"2001" is not an IP address`},
		"bond=b:eth7":                           {notes: "there is no card eth7 none of its cards is there"},
		"bond=b:eth0:mode=fast":                 {notes: `a bond has no mode "fast"`},
		"bond=b:eth0:arp_interval=100":          {notes: `option "arp_interval" of a bond is not known here`},
		"vlan=storage:eth0":                     {notes: "the name of a VLAN ends with its number"},
		"vlan=a1:eth0 vlan=b2:a1": {notes: "a1 is a VLAN itself",
			all: []spec.Interface{eth0, {Name: "a1", VLAN: &spec.VLAN{ID: 1, On: "eth0"}, DHCP: spec.DHCPv4}}},
		"nameserver=dns":                       {notes: `"dns" is not an IP address`},
		"rd.route=198.51.100.0/24:192.0.2.254": {notes: "no interface has this router in its network"},
		"rd.route=198.51.100.0:192.0.2.254":    {notes: "is not a network"},
		"ifname=up:52:54:00:00:00:09":          {notes: "no card has this address"},
		"bond=a*:eth0":                         {notes: "is not the name of an interface"},
	} {
		words := strings.Fields(strings.Replace(line, `"ip=eth0:dhcp"`, "", 1))
		n, any, notes := Parse(words, cards, "")
		if diff := cmp.Diff(spec.Network{Interfaces: want.all, DNS: want.dns}, n); diff != "" || any != want.any {
			t.Errorf("%s: asks each card by %q, (-want +got):\n%s", line, any, diff)
		}
		said := strings.Join(notes, "\n")
		if want.notes == "" && said != "" {
			t.Errorf("%s: says %q", line, said)
		}
		for part := range strings.SplitSeq(want.notes, " none") {
			if !strings.Contains(said, part) {
				t.Errorf("%s: says %q, not %q", line, said, part)
			}
		}
	}
}

// TestParseTheCardOfTheBoot: an address without an interface is that of the one card, or
// of the one that the machine booted by.
func TestParseTheCardOfTheBoot(t *testing.T) {
	words := []string{"ip=192.0.2.7:::24:::none"}
	for want, given := range map[string]struct {
		cards map[string]string
		boot  string
	}{"eth1": {cards, cards["eth1"]}, "eth0": {map[string]string{"eth0": cards["eth0"]}, ""}} {
		n, _, notes := Parse(words, given.cards, given.boot)
		if len(n.Interfaces) != 1 || n.Interfaces[0].Name != want || notes != nil {
			t.Errorf("%+v, %v; want %s", n, notes, want)
		}
	}
}

// TestPage reads each line that docs/network.md shows.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/network.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```cmdline\n")
	block, _, found := strings.Cut(block, "```")
	if !found || strings.Count(block, "\n") < 5 {
		t.Fatalf("docs/network.md shows %q", block)
	}
	for line := range strings.Lines(block) {
		n, any, notes := Parse(strings.Fields(line), cards, "")
		if notes != nil || any == "" && n.Interfaces == nil {
			t.Errorf("%s: %v", line, notes)
		}
	}
}

// FuzzParse holds that no line makes the loader panic, and that nothing comes of one that
// could not stand in a file of systemd-networkd.
func FuzzParse(f *testing.F) {
	f.Add("bond=bond0:eth0,eth1:mode=4,lacp_rate=fast:9000 vlan=bond0.100:bond0 ip=192.0.2.11::192.0.2.1:24::bond0.100:none rd.route=198.51.100.0/24:192.0.2.254")
	f.Add("ip=[2001:db8::7]::[2001:db8::1]:64::eth0:none:9000 nameserver=[2001:db8::53] ifname=up:52:54:00:00:00:02 ip=up:either6 bond")
	f.Fuzz(func(t *testing.T, text string) {
		n, any, _ := Parse(strings.Split(text, " "), cards, "")
		names := map[string]bool{}
		for _, i := range n.Interfaces {
			if rules.Interface(i.Name) != nil || names[i.Name] || i.Name == "" {
				t.Errorf("interface %q, twice: %t", i.Name, names[i.Name])
			}
			names[i.Name] = true
			for _, a := range i.Addresses {
				if p, err := netip.ParsePrefix(a); err != nil || p.Addr().Zone() != "" {
					t.Errorf("address %q", a)
				}
			}
			for _, r := range append(i.Routes, spec.Route{To: "::/0", Via: i.Gateway}) {
				via, err := netip.ParseAddr(r.Via)
				if _, wrong := netip.ParsePrefix(r.To); wrong != nil || r.Via != "" && (err != nil || via.Zone() != "") {
					t.Errorf("route %+v", r)
				}
			}
			if i.VLAN != nil && (i.VLAN.ID < 1 || i.VLAN.ID > 4094 || !names[i.VLAN.On]) {
				t.Errorf("VLAN %+v", i.VLAN)
			}
			if i.Bond != nil && len(i.Bond.Members) == 0 {
				t.Errorf("bond %+v", i.Bond)
			}
		}
		for _, s := range n.DNS {
			if _, err := netip.ParseAddr(s); err != nil {
				t.Errorf("resolver %q", s)
			}
		}
		if !strings.Contains("  ipv4 ipv6 both ", " "+any+" ") {
			t.Errorf("asks by %q", any)
		}
	})
}
