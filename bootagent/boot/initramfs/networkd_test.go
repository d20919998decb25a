// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/network"
	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/boot/networkd"
	"github.com/caisson-os/caisson/bootagent/items/itemtest"
	"github.com/caisson-os/caisson/internal/require"
	"github.com/caisson-os/caisson/spec"
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
	for name, c := range map[string]struct {
		table table.Table
		site  spec.Network
		done  string // what networkd says when it has set all
	}{
		"leased, and the site says nothing": {table.Table{Any: spec.DHCPv4}, spec.Network{}, "eth0: DHCPv4 address and routes set"},
		"given, as the site has it":         {given, given.Network, "eth0: Routes set"},
	} {
		t.Run(name, func(t *testing.T) { carriesOn(t, program, c.table, c.site, c.done) })
	}
}

// given is a card with addresses and routes.
var given = table.Table{Network: spec.Network{Interfaces: []spec.Interface{{Name: "eth0", MAC: "52:54:00:00:00:01", Addresses: []string{"192.0.2.10/24", "2001:db8::10/64"}, Gateway: "192.0.2.1",
	Routes: []spec.Route{{To: "198.51.100.0/24", Via: "192.0.2.254"}}}}}}

func carriesOn(t *testing.T, program string, tab table.Table, site spec.Network, done string) {
	behindWire(t, "eth0", "52:54:00:00:00:01", "192.0.2.10", "")
	defer does(t, "ip", "link", "del", "eth0")
	card := table.Card{Name: "eth0", MAC: "52:54:00:00:00:01"}
	n, err := network.Start(tab, network.Options{Cards: []table.Card{card}, Load: func(string) error { return nil }, Say: t.Logf})
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
	had := whatIs(t)
	writeNetworkd(t, site, networkd.Boot{Lease: ways[0], Made: n.Under(ways[0])})

	gone := watches(t)
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
		if strings.Contains(string(text), done) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("networkd has not said %q:\n%s", done, text)
		}
	}
	if text := gone(); text != "" {
		t.Errorf("it took away\n%s\nof\n%s", text, had)
	}
	now := whatIs(t)
	for line := range strings.Lines(had) {
		if !strings.Contains(now, line) {
			t.Errorf("it lacks %sand has\n%s", line, now)
		}
	}
	_ = daemon.Process.Kill() // before its card goes
}

// whatIs are the card's addresses and routes, but for how long they are and who made them.
func whatIs(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	for _, args := range [][]string{{"-o", "addr", "show", "eth0", "scope", "global"}, {"route"}} {
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
func watches(t *testing.T) (gone func() string) {
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
			if line := s.Text(); strings.Contains(line, "Deleted") && strings.Contains(line, "eth0") && !strings.Contains(line, "fe80::") && !strings.Contains(line, "ff00::") {
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
func writeNetworkd(t *testing.T, site spec.Network, boot networkd.Boot) {
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
	for name, text := range networkd.Files(site, boot) {
		text = strings.ReplaceAll(text, "Kind=!*\n", "") // a card in a namespace is a veth
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
