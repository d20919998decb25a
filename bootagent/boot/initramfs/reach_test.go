// SPDX-License-Identifier: Apache-2.0

package initramfs

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network"
	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/bootagent/record/track"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// TestCompare: which of two answers counts.
func TestCompare(t *testing.T) {
	has := func(epoch, generation uint64, place int) answered {
		return answered{place: place, found: &track.Found{Generation: state.Generation{Epoch: epoch, Generation: generation}}}
	}
	byName := has(9, 9, 0)
	byName.weak = true
	silent, refuses := answered{reason: errors.New("no route to host")}, answered{place: 1, reason: oci.ErrNotFound}
	for name, c := range map[string]struct{ better, worse answered }{
		"a later generation":              {has(1, 8, 1), has(1, 7, 0)},
		"a later epoch":                   {has(2, 1, 1), has(1, 7, 0)},
		"of the card of the boot":         {has(1, 7, 0), has(1, 7, 1)},
		"by the hardware":                 {has(1, 1, 1), byName},
		"an answer rather than none":      {has(1, 1, 1), silent},
		"a refusal rather than silence":   {refuses, silent},
		"of two that say nothing, either": {silent, answered{place: 1, reason: silent.reason}},
	} {
		if c.better.compare(&c.worse) <= 0 || c.worse.compare(&c.better) >= 0 {
			t.Errorf("%s: not believed", name)
		}
	}
}

// behindWire is a network that one cable leads to: DHCP, and a registry at 192.0.2.1 with
// what is in a directory. All of them have the same addresses.
func behindWire(t *testing.T, card, mac, address, layout string) {
	t.Helper()
	there := elsewhere(t)
	does(t, "ip", "link", "add", card, "address", mac, "type", "veth", "peer", "name", "far", "netns", there)
	serves(t, there, layout, mac, address)
}

// elsewhere is a network of its own, that of a process.
func elsewhere(t *testing.T) string {
	t.Helper()
	holds := exec.Command("sleep", "infinity")
	holds.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	starts(t, holds)
	return fmt.Sprint(holds.Process.Pid)
}

func does(t *testing.T, command string, args ...string) {
	t.Helper()
	if out, err := exec.Command(command, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v\n%s", command, args, err, out)
	}
}

// serves serves on the interface far of a network.
func serves(t *testing.T, there, layout, mac, address string) {
	t.Helper()
	for _, args := range [][]string{{"addr", "add", "192.0.2.1/24", "dev", "far"}, {"link", "set", "far", "up"}, {"link", "set", "lo", "up"}} {
		does(t, "nsenter", append([]string{"-t", there, "-n", "ip"}, args...)...)
	}
	if address != "" {
		dir := t.TempDir()
		server := exec.Command("nsenter", "-t", there, "-n", "dnsmasq", "--keep-in-foreground", "--user=root", "--conf-file=/dev/null", "--port=0", "--interface=far", "--no-ping",
			"--log-dhcp", "--log-facility=-", "--dhcp-range=192.0.2.50,192.0.2.99", "--dhcp-host="+mac+","+address, "--dhcp-leasefile="+filepath.Join(dir, "leases"), "--pid-file="+filepath.Join(dir, "pid"))
		server.Stderr = t.Output()
		starts(t, server)
	}
	if layout != "" {
		handler, err := registry.Handler(layout)
		if err != nil {
			t.Fatal(err)
		}
		server := &http.Server{Handler: handler}
		go server.Serve(listenIn(t, there)) // until it is closed
		t.Cleanup(func() { server.Close() })
	}
}

// starts starts a program that ends with the test, and with the thread that started it.
func starts(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	runtime.LockOSThread()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it ends with the test
		_ = cmd.Wait()         // by our signal
	})
}

// listenIn listens in the network of another process.
func listenIn(t *testing.T, process string) net.Listener {
	t.Helper()
	type heard struct {
		net.Listener
		err error
	}
	done := make(chan heard)
	go func() {
		runtime.LockOSThread() // for good: the thread ends with the goroutine
		ns, err := os.Open("/proc/" + process + "/ns/net")
		if err == nil {
			defer ns.Close()
			err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET)
		}
		var l net.Listener
		if err == nil {
			l, err = net.Listen("tcp", "192.0.2.1:5000")
		}
		done <- heard{l, err}
	}()
	h := <-done
	if h.err != nil {
		t.Fatal(h.err)
	}
	return h.Listener
}

// TestSeveralNetworks: a machine with a cable to a network that replays what the site once
// signed, one to a network where its node is not known, one where nobody gives addresses, and
// one to the site's. Which answers first, and which it booted by, does not matter.
func TestSeveralNetworks(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "nsenter", "dnsmasq", "cp") {
		return
	}
	p := publish(t)
	layer := p.layer("image").Overlay.Layer
	layout := p.Registry.Ref().Layout
	p.overlay(1, layer)
	older := filepath.Join(t.TempDir(), "older")
	if out, err := exec.Command("cp", "-r", layout, older).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p.overlay(2, layer)
	macs := []string{"52:54:00:00:00:01", "52:54:00:00:00:02", "52:54:00:00:00:03", "52:54:00:00:00:04"}
	behindWire(t, "eth0", macs[0], "192.0.2.10", older)
	behindWire(t, "eth1", macs[1], "192.0.2.11", publish(t).Registry.Ref().Layout)
	behindWire(t, "eth2", macs[2], "", "")
	behindWire(t, "eth3", macs[3], "192.0.2.13", layout)
	var cards []table.Card
	for n, mac := range macs {
		cards = append(cards, table.Card{Name: fmt.Sprintf("eth%d", n), MAC: mac})
	}
	var err error
	if p.ways.net, err = network.Start(table.Table{Any: spec.DHCPv4}, network.Options{Cards: cards, Load: func(string) error { return nil }, Say: t.Logf}); err != nil {
		t.Fatal(err)
	}
	p.machine.words = []string{"BOOTIF=01-52-54-00-00-00-01"} // that of the network that replays
	p.machine.id.MACs = macs[:1]
	p.machine.bootstrap.Registry, p.machine.bootstrap.PlainHTTP = "192.0.2.1:5000/metal-a", true
	p.ways.source = nil
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if ways, _, _ := p.ways.net.Ways(""); len(ways) == 3 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("not all networks gave an address")
		}
	}
	p.ways.resolv = filepath.Join(t.TempDir(), "resolv.conf")
	if err := p.ways.pickWay(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.ways.lease.Interface != "eth3" {
		t.Errorf("it asks by %s", p.ways.lease.Interface)
	}
	found, err := p.chooser.answer(t.Context())
	if err != nil || found.Generation.Generation != 2 {
		t.Errorf("%+v, %v", found, err)
	}
	if err := p.ways.net.Leave(p.ways.lease); err != nil {
		t.Error(err)
	}
	out, err := exec.Command("ip", "-4", "-br", "addr").CombinedOutput()
	if err != nil || strings.Count(string(out), "192.0.2.") != 1 || !strings.Contains(string(out), "192.0.2.13/24") {
		t.Errorf("addresses that are left: %s %v", out, err)
	}
}

// TestTwoCardsOnOneNetwork: each answers for its own address, so the card counts that the
// machine booted by.
func TestTwoCardsOnOneNetwork(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip", "nsenter", "dnsmasq") {
		return
	}
	p := publish(t)
	p.overlay(1, p.layer("image").Overlay.Layer)
	p.ways.eachItsOwn()
	there := elsewhere(t)
	does(t, "nsenter", "-t", there, "-n", "ip", "link", "add", "far", "type", "bridge")
	macs := []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}
	var cards []table.Card
	for n, mac := range macs {
		card, port := fmt.Sprintf("eth%d", n), fmt.Sprintf("port%d", n)
		does(t, "ip", "link", "add", card, "address", mac, "type", "veth", "peer", "name", port, "netns", there)
		does(t, "nsenter", "-t", there, "-n", "ip", "link", "set", port, "master", "far", "up")
		cards = append(cards, table.Card{Name: card, MAC: mac})
	}
	serves(t, there, p.Registry.Ref().Layout, macs[0], "192.0.2.10")
	var err error
	if p.ways.net, err = network.Start(table.Table{Any: spec.DHCPv4}, network.Options{Cards: cards, Load: func(string) error { return nil }, Say: t.Logf}); err != nil {
		t.Fatal(err)
	}
	p.machine.words, p.machine.id.MACs = []string{"BOOTIF=01-52-54-00-00-00-02"}, macs[1:]
	p.machine.bootstrap.Registry, p.machine.bootstrap.PlainHTTP, p.ways.source, p.ways.resolv = "192.0.2.1:5000/metal-a", true, nil, filepath.Join(t.TempDir(), "resolv.conf")
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(10 * time.Millisecond) {
		ways, pending, _ := p.ways.net.Ways("")
		if len(ways) == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("not both cards have an address: %+v, and %d pending", ways, pending)
		}
	}
	if err := p.ways.pickWay(t.Context()); err != nil || p.ways.lease.Interface != "eth1" {
		t.Fatalf("%+v, %v", p.ways.lease, err)
	}
	if found, err := p.chooser.answer(t.Context()); err != nil || found.Generation.Generation != 1 {
		t.Errorf("%+v, %v", found, err)
	}
	for _, s := range p.ways.arp {
		if err := s.Restore(); err != nil {
			t.Error(err)
		}
	}
	if text, err := os.ReadFile("/proc/sys/net/ipv4/conf/all/arp_ignore"); err != nil || strings.TrimSpace(string(text)) != "0" {
		t.Errorf("the new root has %q, %v", text, err)
	}
}
