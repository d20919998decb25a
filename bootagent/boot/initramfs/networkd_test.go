// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/network"
	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// TestNetworkdCarriesOn starts this machine's systemd-networkd on what the loader has made:
// no address and no route of the loader's is taken away, not even for a moment, whether it
// was given, leased or made of a router's prefix, and the lease is the same one.
func TestNetworkdCarriesOn(t *testing.T) {
	const program = "/lib/systemd/systemd-networkd"
	if _, err := os.Stat(program); err != nil {
		require.Missing(t, "tools", err.Error())
	}
	if !itemtest.InNamespaces(t, "ip", "nsenter", "dnsmasq", "mount") {
		return
	}
	// A read-only /sys says that there is no udev to wait for.
	for _, at := range []string{"/etc/systemd/network", "/run/systemd"} {
		does(t, "mkdir", "-p", at)
		does(t, "mount", "-t", "tmpfs", "tmpfs", at)
	}
	does(t, "mount", "-t", "sysfs", "-o", "ro", "sysfs", "/sys")
	const mac = "52:54:00:00:00:01"
	prefix, leases := []string{"--enable-ra", "--dhcp-range=2001:db8:1::,ra-only,64,10m"}, []string{"--enable-ra", "--dhcp-range=2001:db8:1::100,2001:db8:1::1ff,64,10m"}
	for n, c := range []goesOn{
		{name: "leased, and the site says nothing", table: table.Table{Any: spec.DHCPv4}, done: "DHCPv4 address and routes set"},
		{name: "given, as the site has it", table: table.Table{Network: given}, site: true, done: "Routes set"},
		{name: "of a router's prefix", table: table.Table{Any: spec.DHCPv6}, done: "SLAAC addresses and routes set", server: prefix, address: "2001:db8:1:0:5054:ff:fe00:1/64"},
		{name: "leased by DHCPv6", table: table.Table{Any: spec.DHCPv6}, done: "DHCPv6 addresses and routes set", server: leases, leases: 1},
		{name: "leased by DHCPv6, as the site has it", table: table.Table{Network: asks}, site: true, done: "DHCPv6 addresses and routes set", server: leases, leases: 1},
	} {
		// Go remembers which interface a name is for a minute, so that no other has it.
		c.card = table.Card{Name: fmt.Sprintf("eth%d", n), MAC: mac}
		c.table.Interfaces = slices.Clone(c.table.Interfaces)
		for i := range c.table.Interfaces {
			c.table.Interfaces[i].Name = c.card.Name
		}
		t.Run(c.name, func(t *testing.T) { carriesOn(t, program, c) })
	}
}

// goesOn is a way that a loader has made, and that networkd goes on with.
type goesOn struct {
	name    string
	card    table.Card
	table   table.Table
	site    bool     // that says the same as the table
	done    string   // what networkd says when it has set all
	server  []string // arguments of dnsmasq where the network has IPv6 alone
	address string   // "" is any
	leases  int      // that the server has given in the end
}

// asks is a card that asks by IPv6.
var asks = spec.Network{Interfaces: []spec.Interface{{MAC: "52:54:00:00:00:01", DHCP: spec.DHCPv6}}}

// given is a card with addresses and routes.
var given = spec.Network{Interfaces: []spec.Interface{{MAC: "52:54:00:00:00:01", Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"}, Gateway: "192.0.2.1",
	Routes: []spec.Route{{To: "198.51.100.0/24", Via: "192.0.2.254"}}}}}

func carriesOn(t *testing.T, program string, c goesOn) {
	leases := func() string { return "" }
	if c.server == nil {
		behindWire(t, c.card.Name, c.card.MAC, "192.0.2.10", "")
	} else {
		leases = behindWire6(t, c.card, c.server...)
	}
	defer does(t, "ip", "link", "del", c.card.Name)
	var site spec.Network
	if c.site {
		site = c.table.Network
	}
	n, err := network.Start(c.table, network.Options{Cards: []table.Card{c.card}, Load: func(string) error { return nil }, Say: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	ways, _, _ := n.Ways("")
	if err := n.Leave(ways[0]); err != nil {
		t.Fatal(err)
	}
	if got := ways[0].Address.String(); c.address != "" && got != c.address {
		t.Errorf("the loader has %s, want %s", got, c.address)
	}
	had, leased := whatIs(t, c.card.Name), leases()
	writeNetworkd(t, site, table.Boot{Lease: ways[0], Made: n.Under(ways[0])})

	gone := watches(t, c.card.Name)
	daemon := exec.Command(program)
	daemon.Env = append(os.Environ(), "SYSTEMD_LOG_TARGET=console", "SYSTEMD_LOG_LEVEL=debug")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close() // it is only read by its name
	daemon.Stderr = log
	starts(t, daemon)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		text, err := os.ReadFile(log.Name())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), c.card.Name+": "+c.done) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("networkd has not said %q:\n%s", c.done, text)
		}
	}
	if text := gone(); text != "" {
		t.Errorf("it took away\n%s\nof\n%s", text, had)
	}
	now := whatIs(t, c.card.Name)
	for line := range strings.Lines(had) {
		if !strings.Contains(now, line) {
			t.Errorf("it lacks %sand has\n%s", line, now)
		}
	}
	if got := leases(); got != leased || strings.Count(got, "\n") != c.leases {
		t.Errorf("the server has leased\n%safter\n%s", got, leased)
	}
	_ = daemon.Process.Kill() // before its card goes
}

// behindWire6 is a network with IPv6 alone, at whose end dnsmasq is. leases returns what that has
// leased: IAID, address, and DUID of who has it.
func behindWire6(t *testing.T, card table.Card, server ...string) (leases func() string) {
	t.Helper()
	there := elsewhere(t)
	does(t, "ip", "link", "add", card.Name, "address", card.MAC, "type", "veth", "peer", "name", "far", "netns", there)
	within := []string{"-t", there, "-n"}
	for _, args := range [][]string{{"addr", "add", "2001:db8:1::1/64", "dev", "far", "nodad"}, {"link", "set", "far", "up"}, {"link", "set", "lo", "up"}} {
		does(t, "nsenter", slices.Concat(within, []string{"ip"}, args)...)
	}
	file := filepath.Join(t.TempDir(), "leases")
	daemon := exec.Command("nsenter", slices.Concat(within, []string{"dnsmasq", "--keep-in-foreground", "--user=root", "--conf-file=/dev/null", "--port=0", "--interface=far",
		"--log-dhcp", "--log-facility=-", "--dhcp-leasefile=" + file, "--pid-file=" + file + ".pid"}, server)...)
	daemon.Stderr = t.Output()
	starts(t, daemon)
	return func() string {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		var list strings.Builder
		for line := range strings.Lines(string(text)) {
			if words := strings.Fields(line); len(words) == 5 { // and not the server's own DUID
				fmt.Fprintln(&list, words[1], words[2], words[4])
			}
		}
		return list.String()
	}
}

// whatIs are the card's addresses and routes, but for how long they are and who made them.
func whatIs(t *testing.T, card string) string {
	t.Helper()
	var out strings.Builder
	for _, args := range [][]string{{"-o", "addr", "show", card, "scope", "global"}, {"route"}, {"-6", "route", "show", "dev", card}} {
		text, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, text)
		}
		for line := range strings.Lines(string(text)) {
			words := strings.Fields(line)
			if args[0] == "-o" {
				words = words[2:4]
			} else {
				words = words[:min(len(words), 5)]
			}
			fmt.Fprintln(&out, strings.Join(words, " "))
		}
	}
	return out.String()
}

// watches hears of what is taken away from the card, until it is asked.
func watches(t *testing.T, card string) (gone func() string) {
	t.Helper()
	monitor := exec.Command("ip", "-o", "monitor", "address", "route")
	pipe, err := monitor.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	starts(t, monitor)
	var mu sync.Mutex
	var lines []string
	go func() {
		for s := bufio.NewScanner(pipe); s.Scan(); {
			if line := s.Text(); strings.Contains(line, "Deleted") && strings.Contains(line, card) && !strings.Contains(line, "fe80::") && !strings.Contains(line, "ff00::") {
				mu.Lock()
				lines = append(lines, line)
				mu.Unlock()
			}
		}
	}()
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(lines, "\n")
	}
}

// writeNetworkd writes what the handover writes.
func writeNetworkd(t *testing.T, site spec.Network, boot table.Boot) {
	t.Helper()
	const dir = "/etc/systemd/network"
	old, err := filepath.Glob(dir + "/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range old {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range table.NetworkdFiles(site, boot) {
		text = strings.ReplaceAll(text, "Kind=!*\n", "") // a card in a namespace is a veth
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
