// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongSeveralNetworks boots a node with four cards: one on the site's network, one on a
// network that replays what the site once signed, from the same addresses, one whose DHCP
// server leads to no registry, one where nobody answers.
func TestLongSeveralNetworks(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	if out, err := exec.Command("cp", "-r", f.Dir+"/out", f.Dir+"/older").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	older, err := f.Server(t.Context(), "serve", "oci:older", "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first := status(t, f.login(t, f.start(t, f.byHand(t, machine.Options{Name: "before", MAC: "52:54:00:00:00:0b"}))))
	f.edit(t, "vm.swappiness: 1\n", "vm.swappiness: 2\n")
	f.publish(t)

	o := f.byHand(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b"})
	host, port, err := net.SplitHostPort(older)
	if err != nil {
		t.Fatal(err)
	}
	for n, network := range []string{
		"user,id=more0,restrict=on,guestfwd=tcp:" + guestRegistry + "-cmd:busybox nc " + host + " " + port,
		"user,id=more1,restrict=on",
		"hubport,id=more2,hubid=9",
	} {
		o.Extra = append(o.Extra, "-netdev", network, "-device", fmt.Sprintf("virtio-net-pci,netdev=more%d,addr=%#x,mac=52:54:00:00:01:0%d,romfile=", n, 0x11+n, n))
	}
	m := f.start(t, o)
	waitFor(t, m, 0, fmt.Sprintf("caisson: by eth1, 10.0.2.15/24: has epoch 0, generation %d", first.Generation))
	s := f.login(t, m)
	if st := status(t, s); st.Generation <= first.Generation || st.Sync != "current" || st.Health != "ok" {
		t.Errorf("status %+v, before %+v", st, first)
	}
	if got := run(t, s, "cat /proc/sys/vm/swappiness; ip -4 -br addr show up | grep -v ^lo | tr -s ' ' | cut -d' ' -f1,3"); got != "2\neth0 10.0.2.15/24" {
		t.Errorf("it has %q", got)
	}
}

// TestLongBondOverSoftReboot: bond, VLAN, address and route stay over a soft-reboot, while
// the node is pinged from its network.
func TestLongBondOverSoftReboot(t *testing.T) {
	require.Long(t)
	f := fleet(t, append([]string{"layer:\n", "layer:\n  persist: [/home]\n"}, behindABond...)...)
	s := startLACP(t)
	o := s.behind(f.byHand(t, f.withDisk(t)))
	o.UUID = ""
	m := f.start(t, o)
	in := f.login(t, m)
	mac, err := net.ParseMAC(o.MAC)
	if err != nil {
		t.Fatal(err)
	}
	s.pings(t, mac, netip.MustParseAddr("10.0.2.15"))
	const same = "cat /proc/sys/kernel/random/boot_id; ip -4 -o addr show storage | grep -o 'inet [^ ]*'; ip route; cat /sys/class/net/bond0/ifindex /sys/class/net/storage/ifindex"
	before := run(t, in, same)
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.build(t)
	f.publish(t)
	run(t, in, "sudo caisson-agent sync")
	in = f.leaps(t, m, in)
	if got := run(t, in, same); got != before {
		t.Errorf("after the soft-reboot:\n%s\nbefore:\n%s", got, before)
	}
	if lost := s.pinged.Load() - s.answered.Load(); lost > 1 || strings.Count(before, "10.0.2.15") == 0 {
		t.Errorf("%d of %d pings had no answer", lost, s.pinged.Load())
	}
}

// TestLongNetworkThatCutsOff publishes an address that reaches nobody, for a node whose loader
// asks by DHCP, with no health check in its site: the boot that brings it goes back by itself to
// what ran before, and the node says why.
func TestLongNetworkThatCutsOff(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	m := f.start(t, f.byHand(t, f.withDisk(t)))
	s := f.login(t, m)
	f.edit(t, "machine:\n", "machine:\n  overrides: {hosts: [{name: alpha, conf: {network: {interfaces: [{name: eth0, addresses: [192.0.2.77/24]}]}}}]}\n")
	f.publish(t)
	from := m.Console.Len()
	last(t, m, s, "sudo caisson-agent sync; sudo systemctl reboot")
	waitFor(t, m, from, "caisson: overlay of node alpha, generation 2")
	waitFor(t, m, from, "caisson: entering the layer")
	from = m.Console.Len()
	if waitFor(t, m, from, "Soft-rebooting", "it was rejected on this node") != "Soft-rebooting" {
		waitFor(t, m, from, "caisson: entering the layer")
	}
	s = f.login(t, m)
	st := f.judged(t, s)
	if st.Generation != 1 || st.Sync != spec.SyncBehind || st.Rejected == nil || st.Rejected.Generation != 2 || !strings.Contains(st.Rejected.Reason, reaches) {
		t.Errorf("%+v", st)
	}
	if said := run(t, s, "sudo caisson-agent why || [ $? -eq 3 ]"); !strings.Contains(said, reaches) {
		t.Errorf("why says %s", said)
	}
	// What is published again with the right one is taken.
	f.edit(t, "addresses: [192.0.2.77/24]", "dhcp: ipv4, mtu: 1400")
	f.publish(t)
	run(t, s, "sudo caisson-agent sync || true")
	s = f.reboot(t, m, s)
	if st := f.judged(t, s); st.Generation != 3 || st.Rejected != nil || st.Health != spec.HealthOK {
		t.Errorf("%+v", st)
	}
	run(t, s, "test \"$(cat /sys/class/net/eth0/mtu)\" = 1400")
}
