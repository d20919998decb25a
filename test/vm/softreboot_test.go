// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/require"
)

// TestLongSoftReboot goes to a layer that has one package more, back, and to the same
// root without caisson's doing, all on one kernel. It takes about ten minutes.
func TestLongSoftReboot(t *testing.T) {
	require.Long(t)
	f := fleet(t, "layer:\n", "layer:\n  persist: [/home]\n")
	o := f.byHand(t, f.withDisk(t))
	o.Extra = append(o.Extra, "-device", "i6300esb")
	m := f.start(t, o)
	s := f.login(t, m)
	first := status(t, s)
	if first.Health != "ok" || first.Sync != "current" {
		t.Fatalf("first boot: %+v", first)
	}
	const same = "cat /proc/sys/kernel/random/boot_id /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub; ip -4 -o addr show eth0 | grep -o 'inet [^ ]*'; cat note"
	run(t, s, "echo kept >note; sync")
	before := run(t, s, same)

	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.build(t)
	f.publish(t)
	run(t, s, "sudo caisson-agent sync")
	there := f.softReboot(t, m, s, "caisson-agent reboot")
	s = f.login(t, m)
	second := status(t, s)
	if second.Layer == first.Layer || second.Overlay == first.Overlay || second.Health != "ok" || second.Sync != "current" || second.RootID == first.RootID || second.Staged != "" {
		t.Errorf("after the soft-reboot: %+v", second)
	}
	if got := run(t, s, same); got != before {
		t.Errorf("after the soft-reboot the node is\n%s\nbefore\n%s", got, before)
	}
	if got := run(t, s, "echo 6*7 | bc; cat /proc/sys/vm/swappiness; systemctl show -P RuntimeWatchdogUSec; stat -f -c %T /var/lib/caisson /home; sudo test -e /run/caisson/deadline || echo proven; systemctl --failed --plain --no-legend"); got != "42\n10\n1min\next2/ext3\next2/ext3\nproven" {
		t.Errorf("the new root: %q", got)
	}
	if got := run(t, s, "systemctl soft-reboot 2>&1 || true"); !strings.Contains(got, "refused") && !strings.Contains(got, "Access denied") {
		t.Errorf("one by hand: %s", got)
	}

	run(t, s, "sudo caisson-agent rollback >&2 || [ $? -eq 3 ]")
	back := f.softReboot(t, m, s, "caisson-agent reboot")
	s = f.login(t, m)
	if st := status(t, s); st.Layer != first.Layer || st.Overlay != first.Overlay || st.Health != "ok" {
		t.Errorf("after the way back: %+v", st)
	}
	if got := run(t, s, same+"; ! bc --version 2>/dev/null"); got != before {
		t.Errorf("after the way back the node is\n%s\nbefore\n%s", got, before)
	}
	run(t, s, "sudo rm -r /etc/systemd/system/soft-reboot.target.d; sudo systemctl daemon-reload")
	bare := f.softReboot(t, m, s, "systemctl soft-reboot") // which loses the state: only what systemd does is looked at
	t.Logf("from the call: %.1f s there, %.1f s back, %.1f s bare: %.2f and %.2f of it", there.called, back.called, bare.called, there.called/bare.called, back.called/bare.called)
	t.Logf("from the end of what runs: %.1f s there, %.1f s back: %.2f and %.2f of bare", there.begun, back.begun, there.begun/bare.called, back.begun/bare.called)
}

// leap is how long a soft-reboot took, in seconds, until sshd ran again: from the call,
// and from when that had returned and the old root began to end.
type leap struct{ called, begun float64 }

func (f *Fleet) softReboot(t *testing.T, m *Machine, s *Session, command string) leap {
	t.Helper()
	from := m.Console.Len()
	last(t, s, "sudo sh -c 'cat /proc/uptime >/run/called; "+command+" >/run/said 2>&1; touch /run/said'")
	waitFor(t, m, from, "Soft-rebooting", "caisson: entering the layer")
	waitFor(t, m, from, "login:")
	if strings.Contains(m.Console.String()[from:], "caisson: entering the layer") {
		t.Fatal("the machine was started over")
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	s, err := m.Login(ctx, "admin", f.Key)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close() // it was only read
	// The clocks are read together: what was noted before is in the time of day.
	said := strings.Fields(run(t, s, "systemctl show -P ActiveEnterTimestampMonotonic ssh.service; cat /run/called; stat -c %.9Y /run/said; date +%s.%N; cat /proc/uptime"))
	t.Logf("%s: %q\n%s", command, said, run(t, s, "cat /run/said"))
	if len(said) != 7 {
		t.Fatal("not seven figures")
	}
	var n [7]float64
	for i, text := range said {
		if n[i], err = strconv.ParseFloat(text, 64); err != nil {
			t.Fatal(err)
		}
	}
	up := n[0] / 1e6
	return leap{up - n[1], up - (n[5] - (n[4] - n[3]))}
}
