// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// optionRows are the options of docs/network.md, what a server says by each, and what the loader and
// systemd-networkd have of it.
var optionRows = []struct {
	name, give string   // arguments of dnsmasq
	is         []string // parts of what the card has: addresses, routes, MTU
	isNot      []string
	search     string
	dns        string
}{
	{"1, 3", "--dhcp-option=3,192.0.2.1", []string{"192.0.2.10/24", "default via 192.0.2.1"}, nil, "", ""},
	{"6", "--dhcp-option=6,192.0.2.53,192.0.2.54", nil, nil, "", "192.0.2.53 192.0.2.54"},
	{"121 and no 3", "--dhcp-option=3 --dhcp-option=121,0.0.0.0/0,192.0.2.254,198.51.100.0/24,192.0.2.253",
		[]string{"default via 192.0.2.254", "198.51.100.0/24 via 192.0.2.253"}, nil, "", ""},
	{"121 beside 3", "--dhcp-option=3,192.0.2.1 --dhcp-option=121,198.51.100.0/24,192.0.2.253", []string{"198.51.100.0/24 via 192.0.2.253"}, []string{"default via"}, "", ""},
	{"121 on the link", "--dhcp-option=3 --dhcp-option=121,203.0.113.1/32,0.0.0.0,0.0.0.0/0,203.0.113.1",
		[]string{"203.0.113.1 dev eth0", "default via 203.0.113.1"}, nil, "", ""},
	{"a router elsewhere", "--dhcp-option=1,255.255.255.255 --dhcp-option=3,198.51.100.1", []string{"192.0.2.10/32", "default via 198.51.100.1"}, nil, "", ""},
	{"26", "--dhcp-option=26,1400", []string{"mtu 1400"}, nil, "", ""},
	{"26 below IPv6", "--dhcp-option=26,600", nil, []string{"mtu 600"}, "", ""},
	{"15 and 119", "--dhcp-option=15,a.example --dhcp-option=119,b.example,c.example", nil, nil, "a.example b.example c.example", ""},
	{"12", "--dhcp-option=12,other", nil, nil, "", ""},
	{"33 beside 3", "--dhcp-option=3,192.0.2.1 --dhcp-option=33,198.51.100.0,192.0.2.253,172.16.0.0,192.0.2.252",
		[]string{"default via 192.0.2.1", "198.51.100.0/24 via 192.0.2.253", "172.16.0.0/16 via 192.0.2.252"}, nil, "", ""},
	{"33 beside 121", "--dhcp-option=3 --dhcp-option=33,172.16.0.0,192.0.2.252 --dhcp-option=121,0.0.0.0/0,192.0.2.254",
		[]string{"default via 192.0.2.254"}, []string{"172.16.0.0"}, "", ""},
	{"33 to a group", "--dhcp-option=3,192.0.2.1 --dhcp-option=33,224.0.0.0,192.0.2.253", []string{"default via 192.0.2.1"}, []string{"224.0.0"}, "", ""},
	{"42", "--dhcp-option=42,192.0.2.123,192.0.2.124", nil, nil, "", ""},
}

// TestRouterElsewhere: an address alone and a router in no network of the card, as hosters give it.
func TestRouterElsewhere(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "nsenter") {
		return
	}
	w := plug(t, "eth0", "52:54:00:00:00:01", "198.51.100.1/24")
	n := started(t, table.Table{Network: spec.Network{Interfaces: []spec.Interface{{Name: "eth0", MAC: w.MAC, Addresses: []string{"192.0.2.77/32"}, Gateway: "198.51.100.1",
		Routes: []spec.Route{{To: "203.0.113.0/24", Via: "198.51.100.2"}}}}}}, w)
	comes(t, n, on("eth0"))
	for _, want := range []string{"default via 198.51.100.1 dev eth0 proto static onlink", "203.0.113.0/24 via 198.51.100.2 dev eth0 proto static onlink"} {
		if got := ip(t, "route"); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestNameWithoutADot: a registry's short name is looked for in the domains of its way.
func TestNameWithoutADot(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "nsenter", "dnsmasq") {
		return
	}
	w := plug(t, "eth0", "52:54:00:00:00:01", "192.0.2.1/24")
	w.serves(t, "--port=53", "--no-resolv", "--no-hosts", "--local=/b.example/", // a.example is refused
		"--dhcp-range=192.0.2.10,192.0.2.10", "--dhcp-option=119,a.example,b.example", "--host-record=hub.b.example,192.0.2.1")
	l := comes(t, started(t, table.Table{Any: spec.DHCPv4}, w), on("eth0"))
	_, err := Dial(l, time.Minute)(t.Context(), "tcp", "hub:5000")
	if err == nil || !strings.Contains(err.Error(), "192.0.2.1:5000: connect: connection refused") {
		t.Errorf("%v; nobody listens there, but the name is known", err)
	}
}

// TestOptionsOfDHCP asks for each option by the loader's client, and by systemd-networkd with
// the file that the loader writes: both have the same of it.
func TestOptionsOfDHCP(t *testing.T) {
	const networkdProgram = "/usr/lib/systemd/systemd-networkd"
	if !itemtest.InNamespaces(t, "ip", "nsenter", "dnsmasq", networkdProgram) {
		return
	}
	const mac = "52:54:00:00:00:01"
	for _, a := range optionRows {
		t.Run(a.name, func(t *testing.T) {
			args := append([]string{"--dhcp-range=192.0.2.10,192.0.2.10"}, strings.Fields(a.give)...)
			mine := plug(t, "eth0", mac, "192.0.2.1/24")
			mine.serves(t, args...)
			n := started(t, table.Table{Any: spec.DHCPv4}, mine)
			l := comes(t, n, on("eth0"))
			if got := strings.Join(l.Search, " "); got != a.search {
				t.Errorf("the loader looks for names in %q, want %q", got, a.search)
			}
			if got := strings.Trim(fmt.Sprint(l.DNS), "[]"); got != a.dns {
				t.Errorf("the loader asks %q for names, want %q", got, a.dns)
			}
			if want := map[string]string{"12": "other"}[a.name]; l.HostName != want {
				t.Errorf("the loader has the name %q, want %q", l.HostName, want)
			}
			has := func(ip func(args ...string) string) string {
				return ip("-4", "addr", "show", "eth0") + ip("link", "show", "eth0") + ip("-4", "route")
			}
			loader := has(func(args ...string) string { return ip(t, args...) })
			for _, want := range a.is {
				if !strings.Contains(loader, want) {
					t.Errorf("the loader lacks %q:\n%s", want, loader)
				}
			}
			for _, never := range a.isNot {
				if strings.Contains(loader, never) {
					t.Errorf("the loader has %q:\n%s", never, loader)
				}
			}

			theirs := plug(t, "eth1", mac, "192.0.2.1/24")
			theirs.serves(t, args...)
			holds := exec.Command("sleep", "infinity")
			holds.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
			runs(t, holds)
			inside := wire{there: fmt.Sprint(holds.Process.Pid)}
			ip(t, "link", "set", "eth1", "netns", inside.there, "name", "eth0")
			files := table.NetworkdFiles(spec.Network{}, table.Boot{Lease: l, Made: n.Under(l)})
			dir := t.TempDir()
			for name, text := range files {
				text = strings.ReplaceAll(text, "Kind=!*\n", "") // a card is of no kind, the test's is a veth
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			// Its /sys is read-only, as in a container: so it does not wait for udev.
			cmd := inside.command("unshare", "-m", "sh", "-ec", `cp -r "$0" /dev/shm/$$.network; mount -t sysfs -o ro sysfs /sys; mount -t tmpfs tmpfs /run
				mkdir -p /run/systemd/network /run/systemd/netif; cp /dev/shm/$$.network/* /run/systemd/network; rm -r /dev/shm/$$.network
				chown systemd-network:systemd-network /run/systemd/netif; exec `+networkdProgram, dir)
			cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
			runs(t, cmd)
			var got string
			lacks := func(want string) bool { return !strings.Contains(got, want) }
			for deadline := time.Now().Add(3 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
				got = has(func(args ...string) string {
					out, _ := inside.command(append([]string{"ip"}, args...)...).CombinedOutput() // looked at again
					return string(out)
				})
				if !slices.ContainsFunc(append([]string{"192.0.2.10/"}, a.is...), lacks) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatalf("systemd-networkd lacks one of %q:\n%s", a.is, got)
				}
			}
			servers := map[string]string{"42": "192.0.2.123 192.0.2.124"}[a.name] // which systemd-timesyncd asks
			resolvers := []string{"DNS=" + a.dns + "\n", "DOMAINS=" + a.search + "\n", "NTP=" + servers + "\n"}
			for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
				files, err := filepath.Glob(fmt.Sprintf("/proc/%d/root/run/systemd/netif/links/*", cmd.Process.Pid))
				if err != nil {
					t.Fatal(err)
				}
				got := ""
				for _, name := range files {
					text, _ := os.ReadFile(name) // it is written anew, and looked at again
					got += string(text)
				}
				wrong := func(want string) bool {
					return !strings.Contains(got, "\n"+want) && (!strings.HasSuffix(want, "=\n") || strings.Contains(got, "\n"+want[:len(want)-1]))
				}
				if got != "" && !slices.ContainsFunc(resolvers, wrong) {
					break
				}
				if time.Now().After(deadline) {
					t.Errorf("systemd-networkd lacks one of %q:\n%s", resolvers, got)
					break
				}
			}
			for _, never := range a.isNot {
				if strings.Contains(got, never) {
					t.Errorf("systemd-networkd has %q:\n%s", never, got)
				}
			}
			n.stop()
			n.running.Wait()
			ip(t, "link", "del", "eth0")
		})
	}
}
