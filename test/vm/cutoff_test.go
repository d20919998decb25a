// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// cutOff are what cuts a node off when it is read, and not before: by a boot or a soft-reboot.
var cutOff = []struct {
	name   string
	text   string   // what the site gains; "": it comes with a layer alone, and broken and TestLongBadLayer have its boots
	site   []string // edits of the quickstart
	layer  []string // edits that make the other layer of a soft-reboot; nil: a package more
	agent  string   // statements of Go that the service of that layer's agent begins with
	reason string   // what the node says of it
}{
	{
		name:   "a file of networkd",
		text:   "  files: {/etc/systemd/network/00-other.network: {content: \"[Match]\\nName=eth0\\n[Network]\\nAddress=192.0.2.77/24\\n\"}}\n",
		reason: reaches,
	},
	{
		name: "a file of nftables",
		text: "  files: {/etc/nftables.conf: {content: \"table inet cut { chain out { type filter hook output priority 0; policy drop; }; }\\n\"}}\n" +
			"  units: {nftables.service: {state: enabled}}\n",
		site:   []string{"      - name: tree\n", "      - name: tree\n      - name: nftables\n"},
		reason: reaches,
	},
	{
		name:   "a file of sshd",
		text:   "  files: {/etc/ssh/sshd_config.d/50-other.conf: {content: \"ListenAddress 192.0.2.77\\n\"}}\n",
		site:   []string{"machine:\n", "health:\n  - {name: sshd, unit: ssh.service, interval: 2s, retries: 3}\n\nmachine:\n"},
		reason: "sshd", // the registry answers: only a check of the site can tell
	},
	{
		name:   "a unit",
		text:   "  units: {cuts-off.service: {state: enabled, content: \"[Service]\\nExecStart=/usr/sbin/ip link set eth0 down\\n[Install]\\nWantedBy=multi-user.target\\n\"}}\n",
		reason: reaches,
	},
	{
		name: "a module", // in its place the card's driver goes
		text: "  files:\n    /etc/modprobe.d/cut.conf: {content: \"blacklist virtio_net\\ninstall dummy /sbin/modprobe -r virtio_net\\n\"}\n" +
			"    /etc/modules-load.d/cut.conf: {content: \"dummy\\n\"}\n",
		reason: reaches,
	},
	{
		name:   "a layer without a program",
		site:   []string{"machine:\n", "health:\n  - {name: has-tree, file: /usr/bin/tree, interval: 2s, retries: 3}\n\nmachine:\n"},
		layer:  []string{"      - name: tree\n", "      - name: bc\n"},
		reason: "has-tree",
	},
	{
		name:   "a layer whose agent takes the card down",
		agent:  takesTheCardDown,
		reason: reaches,
	},
}

// takesTheCardDown are statements for [agentThat].
const takesTheCardDown = `_ = exec.Command("ip", "link", "set", "eth0", "down").Run()`

// reaches is the check that a boot has to pass which the registry answered before.
const reaches = "registry is reached"

// TestLongBootsThatCutOff gives a running node what only a boot reads, on its own layer: the change
// of the running node is current, and the boot that reads it goes back by itself to what a boot has
// proved, and the node says why.
func TestLongBootsThatCutOff(t *testing.T) {
	require.Long(t)
	for i, c := range cutOff {
		if c.text == "" {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			f := fleet(t, slices.Concat(leanSite, c.site)...)
			m := f.start(t, f.byHand(t, f.withDisk(t)))
			s := f.login(t, m)
			f.judged(t, s)
			f.edit(t, "  sysctl:\n", c.text+"  sysctl:\n")
			f.publish(t)
			run(t, s, "sudo caisson-agent sync >&2")
			if st := f.judged(t, s); st.Generation != 2 || st.Health != spec.HealthOK {
				t.Fatalf("a running node: %+v", st)
			}
			from := m.Console.Len()
			last(t, m, s, "sudo systemctl reboot")
			waitFor(t, m, from, "caisson: overlay of node alpha, generation 2")
			waitFor(t, m, from, "caisson: entering the layer")
			s = f.goesBack(t, m, m.Console.Len(), c.reason, 1)
			if i > 0 {
				return
			}
			// What comes after it is taken, and a boot proves it.
			f.edit(t, c.text, "")
			f.publish(t)
			run(t, s, "sudo caisson-agent sync >&2 || true")
			if st := f.judged(t, s); st.Generation != 3 || st.Rejected != nil {
				t.Errorf("what came after it is not taken: %+v", st)
			}
			s = f.reboot(t, m, s)
			if st := f.judged(t, s); st.Generation != 3 || st.Health != spec.HealthOK {
				t.Errorf("%+v", st)
			}
		})
	}
}

// TestLongSoftRebootsThatCutOff brings the same with another layer, by a soft-reboot: it goes back
// to the layer before, and the node says why.
func TestLongSoftRebootsThatCutOff(t *testing.T) {
	require.Long(t)
	for _, c := range cutOff {
		t.Run(c.name, func(t *testing.T) {
			f := fleet(t, slices.Concat(leanSite, patient, c.site)...)
			m := f.start(t, f.byHand(t, f.withDisk(t)))
			s := f.login(t, m)
			good := f.judged(t, s)
			if c.layer == nil {
				c.layer = []string{"      - name: tree\n", "      - name: tree\n      - name: bc\n"}
			}
			f.edits(t, slices.Concat([]string{"  sysctl:\n", c.text + "  sysctl:\n"}, c.layer)...)
			if c.agent != "" {
				f.build(t, "--agent", agentThat(t, c.agent))
			} else {
				f.build(t)
			}
			f.publish(t)
			run(t, s, "sudo caisson-agent sync >&2")
			from := m.Console.Len()
			run(t, s, "sudo sh -c 'caisson-agent reboot >/run/said 2>&1 </dev/null &'")
			if waitFor(t, m, from, "Soft-rebooting", "caisson: entering the layer") != "Soft-rebooting" {
				t.Fatal("the machine was started over")
			}
			ends := uint64(1)
			if c.text == "" {
				ends = 2 // its overlay is as good on the layer before
			}
			s = f.goesBack(t, m, m.Console.Len(), c.reason, ends)
			if st := status(t, s); st.Layer != good.Layer {
				t.Errorf("after the way back: %+v", st)
			}
		})
	}
}

// goesBack waits until a node has rejected its second generation, and ends on what it ends on where
// the layer before runs again. It holds that the node knows why.
func (f *Fleet) goesBack(t *testing.T, m *machine.Machine, from int, reason string, ends uint64) *machine.Session {
	t.Helper()
	if waitFor(t, m, from, "Soft-rebooting", "it was rejected on this node") != "Soft-rebooting" {
		waitFor(t, m, from, "caisson: entering the layer")
	}
	s := f.login(t, m)
	compared := func() bool {
		return strings.Contains(run(t, s, "sudo journalctl -t caisson-agent -o cat --no-pager; sudo caisson-agent why -o json || true"), "without it the registry answers")
	}
	if reason == reaches && !becomes(s.Console, compared) {
		t.Errorf("nothing was compared: %+v", status(t, s))
	}
	var st spec.Status
	becomes(s.Console, func() bool { st = status(t, s); return st.Generation == ends && len(st.Checks) == 0 })
	if st.Generation != ends || st.Rejected == nil || st.Rejected.Generation != 2 || !strings.Contains(st.Rejected.Reason, reason) {
		t.Errorf("%+v", st)
	}
	return s
}
