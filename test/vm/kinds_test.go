// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// everyKind is what a site asks for beyond the quickstart: an edit of the example.
// The larger kernel has e1000e.
var everyKind = []string{
	"linux-image-cloud-amd64", "linux-image-amd64",
	"      - name: tree\n", "      - name: tree\n      - name: nfs-kernel-server\n      - name: e2fsprogs\n",
	"    kernel.panic: 30\n", `    kernel.panic: 30
    net.bridge.bridge-nf-call-iptables: 0
    net.ipv4.ip_nonlocal_bind: 1
  sysfs:
    /sys/kernel/mm/transparent_hugepage/defrag: never
    /sys/class/net/lo/tx_queue_len: 777
  files:
    /etc/exports: {content: "/run/export 127.0.0.1(rw,no_root_squash,insecure,fsid=0)\n"}
    /etc/tmpfiles.d/export.conf: {content: "d /run/export 0755 root root\nf /run/export/hello 0644 root root - from the server\n"}
  nics:
    intel:
      match: {driver: e1000e}
      ring: {rx: 512}
      coalesce: {rx-usecs: 20}
      features: {generic-receive-offload: off, tx-nocache-copy: on}
    vmware:
      match: {pci: "0000:00:12.0"}
      ring: {rx: 512, tx: 1024}
    queues:
      match: {mac: "52:54:00:00:01:03"}
      channels: {combined: 2}
      link: {speed: 1000, duplex: full}
      features: {tso: off}
    first:
      match: {mac: "52:54:00:00:00:0b"}
      features: {rx-gro-list: on}
    second:
      match: {mac: "52:54:00:00:01:0b"}
      features: {rx-udp-gro-forwarding: on}
  modules:
    load: [br_netfilter]
    parameters: {dummy: {numdummies: 2}}
    blacklist: [pcspkr]
  units:
    hello.service:
      content: |
        [Service]
        ExecStart=/bin/sleep infinity
        [Install]
        WantedBy=multi-user.target
      state: enabled
      run: started
      limits: {nofile: 4321}
    apt-daily.timer: {state: masked}
    probe.service:
      content: |
        [Unit]
        DefaultDependencies=no
        After=sysinit.target
        [Service]
        Type=oneshot
        ExecStart=/bin/sh -c "{ cat /proc/sys/net/ipv4/ip_nonlocal_bind /sys/class/net/lo/tx_queue_len; grep -c partition /proc/swaps; findmnt -no FSTYPE /srv/early; } >/run/probe.sysinit"
        [Install]
        WantedBy=basic.target
      state: enabled
    probe-network.service:
      content: |
        [Unit]
        DefaultDependencies=no
        After=network-pre.target
        [Service]
        Type=oneshot
        ExecStart=/bin/sh -c "for m in 01 03; do /usr/sbin/ethtool -k $(ip -o link | grep -m1 52:54:00:00:01:$m | cut -d: -f2) | grep -c '^generic-receive-offload: off\\|^tcp-segmentation-offload: off'; done >/run/probe.network"
        [Install]
        WantedBy=basic.target
      state: enabled
`,
	"  mounts:\n", `  mounts:
    early:
      mnt_tgt: /srv/early
      device: tmpfs
      type: tmpfs
      options: size=1M
    share:
      mnt_tgt: /srv/share
      device: 127.0.0.1:/
      type: nfs4
      options: vers=4.2,nosuid,_netdev,nofail
      after: nfs-server.service
      before: hello.service
    space:
      mnt_tgt: none
      device: LABEL=space
      type: swap
      options: pri=7,nofail
    late:
      mnt_tgt: /srv/late
      device: LABEL=late
      type: ext4
      options: noatime,nofail
`,
}

// cards are an e1000e, a vmxnet3 and a virtio card with four queues, which lead
// nowhere.
func cards() []string {
	return []string{
		"-netdev", "hubport,hubid=1,id=one", "-device", "e1000e,netdev=one,addr=0x16,romfile=,mac=52:54:00:00:01:01",
		"-netdev", "hubport,hubid=2,id=two", "-device", "vmxnet3,netdev=two,addr=0x12,romfile=,mac=52:54:00:00:01:02",
		"-netdev", fmt.Sprintf("tap,id=three,ifname=cs%d,queues=4,script=no,downscript=no", os.Getpid()),
		"-device", "virtio-net-pci,netdev=three,addr=0x13,romfile=,mq=on,vectors=10,mac=52:54:00:00:01:03",
	}
}

// disk is a raw image as one more disk of the machine.
func disk(t *testing.T, dir, name, slot string, megabytes int) []string {
	t.Helper()
	file := filepath.Join(dir, name+".raw")
	sh(t, `truncate -s "$2"M "$1"`, file, fmt.Sprint(megabytes))
	return []string{"-drive", "if=none,format=raw,id=" + name + ",file=" + file, "-device", "virtio-blk-pci,addr=" + slot + ",drive=" + name + ",serial=" + name}
}

// named prints the name of the interface with an address.
func named(mac string) string {
	return `$(ip -o link | grep -m1 'link/ether ` + mac + `' | cut -d: -f2 | tr -d ' ')`
}

// looks are what everyKind promises.
var looks = []Check{
	{"sysfs, of a list", "grep -o '\\[.*\\]' /sys/kernel/mm/transparent_hugepage/defrag", "[never]"},
	{"sysfs, by a link", "cat /sys/class/net/lo/tx_queue_len", "777"},
	{"features of each member of the bond, by its own address", "for mac in 00:0b 01:0b; do i=$(grep -l 52:54:00:00:$mac /sys/class/net/*/bonding_slave/perm_hwaddr | cut -d/ -f5); " +
		"/usr/sbin/ethtool -k $i | grep -E '^rx-(gro-list|udp-gro-forwarding)' | sort | cut -d' ' -f2 | tr '\\n' ' '; done", "on off off on"},
	{"ring of an e1000e, by its driver", "/usr/sbin/ethtool -g " + named("52:54:00:00:01:01") + " | awk '/^RX:/{n=$2} END{print n}'", "512"},
	{"coalescing of an e1000e", "/usr/sbin/ethtool -c " + named("52:54:00:00:01:01") + " | awk '/^rx-usecs:/{print $2}'", "20"},
	{"rings of a vmxnet3, by its place", "/usr/sbin/ethtool -g " + named("52:54:00:00:01:02") + " | awk '/^[RT]X:/{a=b; b=$2} END{print a, b}'", "512 1024"},
	{"queues of a virtio card, by its address", "/usr/sbin/ethtool -l " + named("52:54:00:00:01:03") + " | awk '/^Combined/{n=$2} END{print n}'", "2"},
	{"speed of a card", "/usr/sbin/ethtool " + named("52:54:00:00:01:03") + " | grep -o 'Speed: .*'", "Speed: 1000Mb/s"},
	{"features of an e1000e", "/usr/sbin/ethtool -k " + named("52:54:00:00:01:01") + " | grep -c '^generic-receive-offload: off\\|^tx-nocache-copy: on'", "2"},
	{"feature of a virtio card", "/usr/sbin/ethtool -k " + named("52:54:00:00:01:03") + " | grep '^tcp-segmentation-offload'", "tcp-segmentation-offload: off"},
	{"module", "test -d /sys/module/br_netfilter && echo loaded", "loaded"},
	{"sysctl of that module", "cat /proc/sys/net/bridge/bridge-nf-call-iptables", "0"},
	{"blacklist", "/usr/sbin/modprobe -c | grep -x 'blacklist pcspkr'", "blacklist pcspkr"},
	{"unit, started by systemd", "systemctl is-enabled hello.service; systemctl is-active hello.service", "enabled\nactive"},
	{"limit of a service", "grep 'Max open files' /proc/$(systemctl show -P MainPID hello.service)/limits | tr -s ' ' | cut -d' ' -f4", "4321"},
	{"masked", "systemctl is-enabled apt-daily.timer || true", "masked"},
	{"swap space", "awk 'NR>1{print $2, $5}' /proc/swaps", "partition 7"},
	{"network file system", "timeout 500 cat /srv/share/hello; echo; findmnt -no FSTYPE,OPTIONS /srv/share | grep -o 'nfs4 .*nosuid'", "~from the server\nnfs4 rw,nosuid"},
}

// look wants checks to hold.
func look(t *testing.T, s *machine.Session, checks ...Check) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	seen, err := Look(ctx, s, checks...)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range seen {
		if c.Err != nil {
			t.Error(c.Err)
		}
	}
}

// TestEveryKind boots a node with something of every kind, on cards of three drivers and
// behind a bond, changes it by hand, changes its site, and takes the change back.
func TestEveryKind(t *testing.T) {
	f, _, s := withEveryKind(t)
	t.Run("as the site says", func(t *testing.T) {
		look(t, s, append(slices.Clone(looks), Check{"it was started at boot, not by the agent", "sudo journalctl -b -q --no-pager -o cat -u hello.service | grep -c Started", "1"},
			Check{"and had its limit then", "systemctl show -P NeedDaemonReload hello.service", "no"},
			Check{"what is there before sysinit.target", "cat /run/probe.sysinit", "1\n777\n1\ntmpfs"},
			Check{"and before network-pre.target", "cat /run/probe.network", "1\n1"},
			Check{"the agent had nothing of that left to set", "sudo journalctl -b --no-pager -o cat -u caisson-agent.service | grep -v 'it changes' | grep -c 'ip_nonlocal_bind\\|tx_queue_len' || true", "0"},
			Check{"what is mounted before it", "test $(systemctl show -P ActiveEnterTimestampMonotonic caisson-agent.service) -lt $(systemctl show -P ActiveEnterTimestampMonotonic hello.service) && echo before", "before"},
			Check{"a disk that is not there yet", "sudo caisson-agent status || true", "~LABEL=late is not there yet"})...)
		t.Logf("what is set before services start took:\n%s", run(t, s, "systemctl show -p ExecMainStartTimestampMonotonic,ExecMainExitTimestampMonotonic,UserspaceTimestampMonotonic caisson-early.service; systemd-analyze blame --no-pager | head -8; sudo journalctl -b -q --no-pager -o short-monotonic -u caisson-early.service"))
	})
	t.Run("what somebody changed comes back", func(t *testing.T) {
		run(t, s, "sudo systemctl stop hello.service; echo 5 | sudo tee /sys/class/net/lo/tx_queue_len; sudo umount /srv/share; sudo swapoff -a; sudo /usr/sbin/ethtool -G "+
			named("52:54:00:00:01:01")+" rx 256; sudo /usr/sbin/ethtool -L "+named("52:54:00:00:01:03")+" combined 1; sudo caisson-agent sync || true")
		look(t, s, looks...)
	})
	t.Run("a disk that comes later", func(t *testing.T) {
		run(t, s, "sudo mkfs.ext4 -q -L late /dev/disk/by-id/virtio-late && sudo udevadm settle; sudo caisson-agent sync || true")
		look(t, s, Check{"mounted", "findmnt -no FSTYPE,OPTIONS /srv/late", "~ext4 rw,noatime"}, Check{"status", "sudo caisson-agent status", "~health      ok"})
	})
	t.Run("a server that is gone", func(t *testing.T) { f.serverGone(t, s) })
	t.Run("scripts that do harm", func(t *testing.T) { f.harm(t, s) })
	t.Run("a live change and back", func(t *testing.T) { f.changeKinds(t, s) })
}

// withEveryKind boots that node.
func withEveryKind(t *testing.T, edits ...string) (*Fleet, *machine.Machine, *machine.Session) {
	t.Helper()
	require.Tool(t, "truncate", "mkswap")
	f := fleet(t, slices.Concat(everyKind, leanSite, behindABond, edits)...)
	late, space := disk(t, f.Dir, "late", "0x14", 64), disk(t, f.Dir, "space", "0x15", 64)
	sh(t, `mkswap -q -L space "$1"`, filepath.Join(f.Dir, "space.raw"))
	net := startLACP(t)
	m := f.start(t, f.byHand(t, net.behind(machine.Options{Memory: 3072, Extra: slices.Concat(cards(), late, space)})))
	return f, m, net.bonds(t, f, m)
}

// TestLongEveryKindOverSoftReboot has that node go to a layer that has one package more: in the
// new root every kind is as after a boot.
func TestLongEveryKindOverSoftReboot(t *testing.T) {
	require.Long(t)
	f, m, s := withEveryKind(t, "machine:\n", "machine:\n  agent: {poll: 1m}\n")
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.build(t)
	f.publish(t)
	run(t, s, "sudo caisson-agent sync >&2 || true") // a disk is not there
	staged(t, s)
	s = f.leaps(t, m, s)
	look(t, s, slices.Concat(looks, []Check{
		{"the new layer", "echo 6*7 | bc", "42"},
		{"what is there before sysinit.target", "cat /run/probe.sysinit", "1\n777\n1\ntmpfs"},
		{"and before network-pre.target", "cat /run/probe.network", "1\n1"},
		{"orders of mounts", "sudo journalctl -b -q --no-pager -u caisson-agent | grep -c 'did not hold' || true", "0"}})...)
}

// serverGone stops the server of a mounted file system: a look must not wait for it.
func (f *Fleet) serverGone(t *testing.T, s *machine.Session) {
	run(t, s, "sudo systemctl stop nfs-server.service")
	// A name that was never asked for is in no cache.
	out := run(t, s, "sudo timeout 300 caisson-agent sync >/dev/null; echo code $?; timeout 5 ls /srv/share/new >/dev/null 2>&1; echo ls $?")
	if strings.Contains(out, "code 124") || !strings.Contains(out, "ls 124") {
		t.Errorf("without the server: %q; want a look that ends, and a mount that waits", out)
	}
	run(t, s, "sudo systemctl start nfs-server.service")
	look(t, s, Check{"the server is back", "timeout 500 cat /srv/share/hello", "from the server"})
}

// harm publishes scripts that take too much and end what they should not.
func (f *Fleet) harm(t *testing.T, s *machine.Session) {
	const with = `  exec:
    20-hungry: {rerun_policy: never, memoryMax: 32M, data: "#!/bin/sh\necho begins\nhead -c 100000000 /dev/zero | tail\n"}
    30-forks: {rerun_policy: never, tasksMax: 8, data: "#!/bin/sh\nfor n in 1 2 3 4 5 6 7 8 9 10 11 12; do sleep 100 & done\n"}
    40-kills: {rerun_policy: never, data: "#!/bin/sh\npkill -KILL -f 'caisson-agent run'; pkill -f 'caisson-agent run'; sleep 1; echo survived\n"}
`
	f.edit(t, "  exec:\n", with)
	f.publish(t)
	said := run(t, s, "sudo caisson-agent sync 2>&1 || true")
	if !strings.Contains(said, `script "40-kills" said: survived`) {
		t.Errorf("what a script printed is not said:\n%s", said)
	}
	look(t, s,
		Check{"one that takes too much memory", "sudo caisson-agent status --logs 20-hungry", "~oom-kill"},
		Check{"one that forks too much", "sudo caisson-agent status --logs 30-forks", "~annot fork"},
		Check{"one that kills the agent", "sudo caisson-agent status --logs 40-kills", "~  survived"},
		Check{"nothing of them is left", "pgrep -c -f '[s]leep 100' || true", "0"},
		Check{"the agent is back", "until test $(systemctl show -P NRestarts caisson-agent.service) -gt 0 && systemctl is-active -q caisson-agent.service; do sleep 1; done; echo back", "back"})
	f.edit(t, with, "  exec:\n")
	f.publish(t)
	run(t, s, "sudo caisson-agent sync || true")
}

// changeKinds publishes a change of units and modules and takes it back.
func (f *Fleet) changeKinds(t *testing.T, s *machine.Session) {
	change := []string{"load: [br_netfilter]", "load: [br_netfilter, dummy]", "limits: {nofile: 4321}", "limits: {nofile: 4322}", "rx: 512, tx: 1024", "rx: 256, tx: 1024",
		"    apt-daily.timer: {state: masked}\n", "    apt-daily.timer: {state: masked}\n    again.service: {content: \"[Service]\\nExecStart=/bin/sleep infinity\\n\", run: started}\n"}
	for i := 0; i < len(change); i += 2 {
		f.edit(t, change[i], change[i+1])
	}
	f.publish(t)
	said := run(t, s, "sudo caisson-agent sync 2>&1 || true")
	look(t, s, Check{"module, live, with its parameter", "ls /sys/class/net | grep -c '^dummy[01]$'", "2"},
		Check{"unit, live", "systemctl is-active again.service", "active"},
		Check{"ring, live", "/usr/sbin/ethtool -g " + named("52:54:00:00:01:02") + " | awk '/^[RT]X:/{a=b; b=$2} END{print a, b}'", "256 1024"},
		Check{"the service runs with the old limit", "grep 'Max open files' /proc/$(systemctl show -P MainPID hello.service)/limits | tr -s ' ' | cut -d' ' -f4", "4321"})
	if out := run(t, s, "sudo caisson-agent status || true"); !strings.Contains(out, "old settings until it is restarted") {
		t.Errorf("status does not name the service with the old limit:\n%s\n%s", said, out)
	}
	for i := 0; i < len(change); i += 2 {
		f.edit(t, change[i+1], change[i])
	}
	f.publish(t)
	run(t, s, "sudo caisson-agent sync || true")
	look(t, s, Check{"a unit that left", "ls /etc/systemd/system/again.service 2>&1 || true; systemctl is-active again.service || true", "~No such file"})
	run(t, s, "sudo systemctl restart hello.service; sudo caisson-agent sync") // its file was written again
	look(t, s, append(slices.Clone(looks), Check{"status", "sudo caisson-agent status", "~health      ok"})...)
}
