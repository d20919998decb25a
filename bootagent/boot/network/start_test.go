// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// wire is a card of the test's namespace, and the other end of its cable in another one.
type wire struct {
	table.Card
	there string // process whose namespace that is
}

// plug makes a card whose other end is up, with addresses, in a namespace of its own.
func plug(t *testing.T, name, mac string, addresses ...string) wire {
	t.Helper()
	holds := exec.Command("sleep", "infinity")
	holds.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	runs(t, holds)
	w := wire{table.Card{Name: name, MAC: mac}, fmt.Sprint(holds.Process.Pid)}
	ip(t, "link", "add", name, "address", mac, "type", "veth", "peer", "name", "far", "netns", w.there)
	w.ip(t, "link", "set", "far", "addrgenmode", "none") // dnsmasq advertises nothing from an address that is not settled
	for _, a := range append(addresses, "fe80::1/64") {
		w.ip(t, "addr", "add", a, "dev", "far", "nodad")
	}
	w.ip(t, "link", "set", "far", "up")
	return w
}

// ip runs ip(8) at the other end.
func (w wire) ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := w.command(append([]string{"ip"}, args...)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

// command is one that runs there.
func (w wire) command(args ...string) *exec.Cmd {
	return exec.Command("nsenter", append([]string{"-t", w.there, "-n"}, args...)...)
}

// runs starts a program that ends with the test, and with the thread that started it.
func runs(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	runtime.LockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it ends with the test
		_ = cmd.Wait()         // by our signal
	})
}

func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// serves starts dnsmasq at the other end; it ends with the test, which shows what it said
// when it failed.
func (w wire) serves(t *testing.T, args ...string) {
	t.Helper()
	dir := t.TempDir()
	if !slices.Contains(args, "--port=53") {
		args = append(args, "--port=0")
	}
	log := filepath.Join(dir, "log")
	runs(t, w.command(append([]string{"dnsmasq", "--keep-in-foreground", "--user=root", "--conf-file=/dev/null", "--interface=far",
		"--no-ping", "--log-dhcp", "--log-facility=" + log, "--dhcp-leasefile=" + filepath.Join(dir, "leases"), "--pid-file=" + filepath.Join(dir, "pid")}, args...)...))
	said := func() string {
		text, _ := os.ReadFile(log) // it has said nothing yet
		return string(text)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(said())
		}
	})
	for !strings.Contains(said(), "started") && t.Context().Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
}

// started starts a table, and ends what it does with the test.
func started(t *testing.T, tab table.Table, wires ...wire) *Network {
	t.Helper()
	var cards []table.Card
	for _, w := range wires {
		cards = append(cards, w.Card)
	}
	n, err := Start(tab, Options{Cards: cards, Load: func(string) error { return nil }, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.stop(); n.running.Wait() })
	return n
}

// comes waits for a way of an interface.
func comes(t *testing.T, n *Network, is func(*record.Lease) bool) *record.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		ways, _, changed := n.Ways("")
		if i := slices.IndexFunc(ways, is); i >= 0 {
			return ways[i]
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("no such way; there are %v, and none by %v", ways, n.silent)
		}
	}
}

func on(name string) func(*record.Lease) bool {
	return func(l *record.Lease) bool { return l.Interface == name }
}

// TestAddressesThatAreGiven: a card has what the table says, also where nobody else is on
// its network; one without a carrier is a way as soon as its cable is plugged.
func TestAddressesThatAreGiven(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "nsenter") {
		return
	}
	w := plug(t, "eth0", "52:54:00:00:00:01", "192.0.2.1/24", "2001:db8::1/64")
	late := plug(t, "eth1", "52:54:00:00:00:02")
	late.ip(t, "link", "set", "far", "down")
	n := started(t, table.Table{Network: spec.Network{DNS: []string{"192.0.2.53"}, Interfaces: []spec.Interface{
		{Name: "eth0", MAC: w.MAC, MTU: 1400, Addresses: []string{"192.0.2.7/24", "2001:db8::7/64"}, Gateway: "192.0.2.1",
			Routes: []spec.Route{{To: "198.51.100.0/24", Via: "192.0.2.254"}, {To: "203.0.113.0/24"}, {To: "::/0", Via: "2001:db8::1"}, {To: "198.51.100.0/24", Via: "192.0.2.253", Metric: 700}}},
		{Name: "eth1", MAC: late.MAC, Addresses: []string{"192.0.2.130/25"}}}}}, w, late)
	l := comes(t, n, on("eth0"))
	if !l.Static || l.Address.String() != "192.0.2.7/24" || l.Gateway.String() != "192.0.2.1" || fmt.Sprint(l.DNS) != "[192.0.2.53]" || l.MAC != w.MAC {
		t.Errorf("%+v", l)
	}
	for command, want := range map[string]string{
		"-4 -br addr show eth0":      "192.0.2.7/24",
		"-6 addr show eth0":          "2001:db8::7/64 scope global \n",
		"link show eth0":             "mtu 1400",
		"route show default":         "default via 192.0.2.1 dev eth0 proto static",
		"route show 198.51.100.0/24": "198.51.100.0/24 via 192.0.2.254 dev eth0 proto static",
		"route show metric 700":      "198.51.100.0/24 via 192.0.2.253 dev eth0 proto static",
		"route show 203.0.113.0/24":  "203.0.113.0/24 dev eth0 proto static scope link",
		"-6 route show default":      "default via 2001:db8::1 dev eth0 proto static",
	} {
		if got := ip(t, strings.Fields(command)...); !strings.Contains(got, want) {
			t.Errorf("ip %s: %s, want %s", command, got, want)
		}
	}
	if ways, pending, _ := n.Ways(""); len(ways) != 1 || pending != 0 {
		t.Errorf("ways %v, and %d to come without a carrier", ways, pending)
	}
	late.ip(t, "link", "set", "far", "up")
	comes(t, n, on("eth1"))
	if err := n.Leave(l); err != nil {
		t.Error(err)
	}
	if got := ip(t, "-4", "-br", "addr"); strings.Contains(got, "192.0.2.130") || !strings.Contains(got, "192.0.2.7/24") {
		t.Errorf("after Leave: %s", got)
	}
	if own := n.Under(l); len(own.Interfaces) != 1 || own.Interfaces[0].Name != "eth0" {
		t.Errorf("the way is made of %+v", own)
	}
}

// TestACardThatComesBack: no error about a card is the last word on it.
func TestACardThatComesBack(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "nsenter") {
		return
	}
	const mac = "52:54:00:00:00:01"
	w := plug(t, "eth0", mac)
	w.ip(t, "link", "set", "far", "down")
	n := started(t, table.Table{Network: spec.Network{Interfaces: []spec.Interface{{Name: "eth0", MAC: mac, Addresses: []string{"192.0.2.10/24"}}}}}, w)
	ip(t, "link", "del", "eth0")
	gone, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	why := func() string { n.mu.Lock(); defer n.mu.Unlock(); return fmt.Sprint(n.silent) }
	for !strings.Contains(why(), "no such network interface") && gone.Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if gone.Err() != nil {
		t.Fatal(why())
	}
	plug(t, "eth0", mac)
	ip(t, "link", "set", "eth0", "up")
	comes(t, n, on("eth0"))
}

// TestEachCardIsAsked: without a table each card is, and one that nobody answers is not in
// the way of the others.
func TestEachCardIsAsked(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "nsenter", "dnsmasq") {
		return
	}
	w := plug(t, "eth0", "52:54:00:00:00:01", "192.0.2.1/24")
	silent := plug(t, "eth1", "52:54:00:00:00:02")
	w.serves(t, "--dhcp-range=192.0.2.100,192.0.2.150", "--dhcp-host=52:54:00:00:00:01,192.0.2.99,node-a", "--dhcp-option=option:dns-server,192.0.2.53")
	n := started(t, table.Table{Any: spec.DHCPv4}, w, silent)
	l := comes(t, n, on("eth0"))
	if l.Static || l.Address.String() != "192.0.2.99/24" || l.HostName != "node-a" || fmt.Sprint(l.DNS) != "[192.0.2.53]" {
		t.Errorf("%+v", l)
	}
	if _, pending, _ := n.Ways(""); pending != 1 {
		t.Errorf("%d to come, want the card that nobody answers", pending)
	}
	if got := ip(t, "route", "show", "default"); !strings.Contains(got, "default via 192.0.2.1 dev eth0 proto dhcp src 192.0.2.99 metric 1024") {
		t.Errorf("route: %s", got)
	}
	if own := n.Under(l); len(own.Interfaces) != 1 || own.Interfaces[0].DHCP != spec.DHCPv4 {
		t.Errorf("the way is made of %+v", own)
	}
}

// TestIPv6: by a router's prefix, or by DHCPv6 where the router says so, with the resolvers
// that either tells.
func TestIPv6(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "nsenter", "dnsmasq") {
		return
	}
	slaac := plug(t, "eth0", "52:54:00:00:00:01", "2001:db8:1::1/64")
	managed := plug(t, "eth1", "52:54:00:00:00:02", "2001:db8:2::1/64")
	slaac.serves(t, "--enable-ra", "--dhcp-range=2001:db8:1::,ra-only,64,10m", "--dhcp-option=option6:dns-server,[2001:db8:1::53]",
		"--dhcp-option=option6:domain-search,a.example,b.example")
	managed.serves(t, "--enable-ra", "--dhcp-range=2001:db8:2::100,2001:db8:2::1ff,64,10m",
		"--dhcp-option=option6:dns-server,[2001:db8:2::53]",
		"--dhcp-option=option6:domain-search,c.example")
	n := started(t, table.Table{Any: spec.DHCPv6}, slaac, managed)
	if l := comes(t, n, on("eth0")); l.Address.String() != "2001:db8:1:0:5054:ff:fe00:1/64" || !strings.Contains(fmt.Sprint(l.DNS), "2001:db8:1::53") {
		t.Errorf("by the router's prefix: %+v", l)
	} else if got := strings.Join(l.Search, " "); got != "a.example b.example" {
		t.Errorf("domains of the router: %q", got)
	}
	l := comes(t, n, on("eth1"))
	if a := l.Address.String(); !strings.HasPrefix(a, "2001:db8:2::1") || !strings.HasSuffix(a, "/128") || !strings.Contains(fmt.Sprint(l.DNS), "2001:db8:2::53") {
		t.Errorf("by DHCPv6: %+v", l)
	} else if got := strings.Join(l.Search, " "); got != "c.example" {
		t.Errorf("domains of DHCPv6: %q", got)
	}
	if got := ip(t, "-6", "addr", "show", "eth1"); !strings.Contains(got, l.Address.String()) {
		t.Errorf("%s is not on the card: %s", l.Address, got)
	}
	routes := ip(t, "-6", "route", "show", "default")
	for _, name := range []string{"eth0", "eth1"} {
		if !strings.Contains(routes, "proto ra") || !strings.Contains(routes, "dev "+name) {
			t.Errorf("%s has no default route: %s", name, routes)
		}
	}
}

// advertises starts radvd(8) at the other end, with a prefix and what else is said there.
func (w wire) advertises(t *testing.T, prefix, more string) {
	t.Helper()
	dir := t.TempDir()
	conf := filepath.Join(dir, "radvd.conf")
	text := fmt.Sprintf("interface far { AdvSendAdvert on; MinRtrAdvInterval 3; MaxRtrAdvInterval 4; %s\n%s };\n", more, prefix)
	if err := os.WriteFile(conf, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	w.ip(t, "link", "set", "lo", "up")
	radvd := w.command("radvd", "--nodaemon", "--logmethod=stderr", "--config="+conf, "--pidfile="+filepath.Join(dir, "pid"))
	radvd.Stderr = t.Output()
	runs(t, radvd)
}

// TestRoutersBits: what the router says in its M and O bits is followed, as radvd sends them: an
// address of DHCPv6, or one of the prefix and resolvers of DHCPv6.
func TestRoutersBits(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "nsenter", "dnsmasq", "radvd") {
		return
	}
	managed := plug(t, "eth0", "52:54:00:00:00:01", "2001:db8:3::1/64")
	other := plug(t, "eth1", "52:54:00:00:00:02", "2001:db8:4::1/64")
	neither := plug(t, "eth2", "52:54:00:00:00:03", "2001:db8:5::1/64")
	managed.serves(t, "--dhcp-range=2001:db8:3::100,2001:db8:3::1ff,64,10m", "--dhcp-option=option6:dns-server,[2001:db8:3::53]")
	other.serves(t, "--dhcp-range=2001:db8:4::,static", "--dhcp-option=option6:dns-server,[2001:db8:4::53]")
	managed.advertises(t, "prefix 2001:db8:3::/64 { AdvOnLink on; AdvAutonomous off; };", "AdvManagedFlag on;")
	other.advertises(t, "prefix 2001:db8:4::/64 { AdvOnLink on; AdvAutonomous on; };", "AdvOtherConfigFlag on;")
	neither.advertises(t, "prefix 2001:db8:5::/64 { AdvOnLink on; AdvAutonomous on; };\nRDNSS 2001:db8:5::53 { };", "")
	n := started(t, table.Table{Any: spec.DHCPv6}, managed, other, neither)
	if l := comes(t, n, on("eth0")); !strings.HasPrefix(l.Address.String(), "2001:db8:3::1") || l.Address.Bits() != 128 || fmt.Sprint(l.DNS) != "[2001:db8:3::53]" {
		t.Errorf("with M: %+v", l)
	}
	if l := comes(t, n, on("eth1")); l.Address.String() != "2001:db8:4:0:5054:ff:fe00:2/64" || fmt.Sprint(l.DNS) != "[2001:db8:4::53]" {
		t.Errorf("with O: %+v", l)
	}
	if l := comes(t, n, on("eth2")); l.Address.String() != "2001:db8:5:0:5054:ff:fe00:3/64" || fmt.Sprint(l.DNS) != "[2001:db8:5::53]" {
		t.Errorf("with neither: %+v", l)
	}
}

// TestRename: an interface keeps what it has under the name that the new root knows, and one
// that the new root does not make goes. A bridge stands for the bond: any kernel makes one.
func TestRename(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "nsenter") {
		return
	}
	w := plug(t, "eth0", "52:54:00:00:00:01", "192.0.2.1/24")
	ip(t, "link", "add", "bond0", "type", "bridge")
	n := started(t, table.Table{Network: spec.Network{Interfaces: []spec.Interface{{Name: "bond0", Bond: &spec.Bond{Members: []string{w.MAC}, Mode: "active-backup"},
		Addresses: []string{"192.0.2.7/24", "2001:db8::7/64"}, Gateway: "192.0.2.1", Routes: []spec.Route{{To: "198.51.100.0/24", Via: "192.0.2.254"}}}}}}, w)
	ip(t, "link", "set", "eth0", "up") // which a bond does itself
	l := comes(t, n, on("bond0"))
	if err := n.Leave(l); err != nil {
		t.Fatal(err)
	}
	moved, err := n.Rename(l, map[string]string{"bond0": "uplink"})
	if err != nil || moved.Interface != "uplink" || n.Under(moved).Interfaces[0].Name != "uplink" {
		t.Fatalf("%+v, %v", moved, err)
	}
	got := ip(t, "addr", "show", "uplink") + ip(t, "route")
	for _, want := range []string{"192.0.2.7/24", "2001:db8::7/64", "default via 192.0.2.1 dev uplink", "198.51.100.0/24 via 192.0.2.254 dev uplink"} {
		if !strings.Contains(got, want) {
			t.Errorf("lost %s:\n%s", want, got)
		}
	}
	gone, err := n.Rename(moved, map[string]string{"uplink": ""})
	if got := ip(t, "-br", "link"); err != nil || gone != moved || strings.Contains(got, "uplink") {
		t.Errorf("%v, %v:\n%s", gone, err, got)
	}
}

// kernelMakes skips the test where the kernel has no such interfaces, whatever CAISSON_REQUIRE
// names: nobody can install them there, and TestEveryKind of test/vm brings a kernel
// along that has them.
func kernelMakes(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", append([]string{"link", "add", "try-" + name}, args...)...).CombinedOutput(); err != nil {
		t.Skipf("the kernel makes no %s: %s", name, out)
	}
	ip(t, "link", "del", "try-"+name)
}

// TestBondAndVLAN: interfaces that are made carry others, and have their address of the
// first card.
func TestBondAndVLAN(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "nsenter") {
		return
	}
	kernelMakes(t, "bond", "type", "bond")
	a := plug(t, "eth0", "52:54:00:00:00:01")
	b := plug(t, "eth1", "52:54:00:00:00:02")
	kernelMakes(t, "vlan", "link", "eth0", "type", "vlan", "id", "9")
	a.ip(t, "link", "add", "link", "far", "name", "tagged", "type", "vlan", "id", "100")
	a.ip(t, "addr", "add", "192.0.2.1/24", "dev", "tagged")
	a.ip(t, "link", "set", "tagged", "up")
	n := started(t, table.Table{Network: spec.Network{Interfaces: []spec.Interface{
		{Name: "storage", VLAN: &spec.VLAN{ID: 100, On: "uplink"}, MTU: 1400, Addresses: []string{"192.0.2.11/24"}, Gateway: "192.0.2.1"},
		{Name: "uplink", Bond: &spec.Bond{Members: []string{a.MAC, b.MAC}, Mode: "active-backup", Primary: b.MAC}, MTU: 1450},
	}}}, a, b)
	l := comes(t, n, on("storage"))
	if l.MAC != a.MAC || l.Address.String() != "192.0.2.11/24" {
		t.Errorf("%+v", l)
	}
	for command, want := range map[string]string{
		"-d link show uplink":     "bond mode active-backup",
		"-d link show dev uplink": "primary eth1",
		"link show uplink":        "link/ether " + a.MAC,
		"-d link show storage":    "vlan protocol 802.1Q id 100",
		"link show storage":       "mtu 1400",
		"link show master uplink": "eth1",
	} {
		if got := ip(t, strings.Fields(command)...); !strings.Contains(got, want) {
			t.Errorf("ip %s: %s, want %s", command, got, want)
		}
	}
	if out, err := exec.Command("ping", "-c", "1", "-w", "60", "192.0.2.1").CombinedOutput(); err != nil {
		t.Errorf("over the bond: %v\n%s", err, out)
	}
	if own := n.Under(l); len(own.Interfaces) != 2 || own.Interfaces[0].Name != "uplink" || own.Interfaces[1].Name != "storage" {
		t.Errorf("the way is made of %+v", own)
	}
}

func TestBroadcast(t *testing.T) {
	for prefix, want := range map[string]string{"10.0.2.15/24": "10.0.2.255", "10.0.2.15/20": "10.0.15.255", "10.0.2.15/32": "10.0.2.15"} {
		if got := broadcast(netip.MustParsePrefix(prefix)).String(); got != want {
			t.Errorf("%s: %s, want %s", prefix, got, want)
		}
	}
}
