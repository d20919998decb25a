// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
)

// TestDisklessNode is the life of a node without a disk: it boots by PXE, refuses what is
// not for it, goes to the layer before by a pin, holds what the site says, and changes layer
// by a reboot.
func TestDisklessNode(t *testing.T) {
	f := fleet(t, leanSite...)
	t.Run("a hundred lines at once", f.fastConsole)
	previous := f.index(t)
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.build(t)
	f.publish(t)
	newest := f.index(t)
	m, s := f.refusedAndPinned(t, previous)
	look(t, s, Quickstart("beta", "1")...)
	first := status(t, s)
	if first.Mode != "netboot" || first.Source != "fetched" || first.Sync != "current" || first.Generation == 0 {
		t.Errorf("status %+v", first)
	}
	if len(first.Foreign) > 0 {
		t.Errorf("files that nobody wrote are in the upper: %v", first.Foreign)
	}
	f.memory(t, s)
	if t.Failed() {
		t.FailNow() // what follows takes minutes
	}

	f.must(t, "forward", f.To(), "--node", "beta", "--key", "keys/operator.key")
	f.publish(t, "--layer", previous)
	run(t, s, "sudo caisson-agent sync")
	if st := status(t, s); st.Generation != first.Generation || st.Sync != "current" || st.Staged != "" || st.Health != "ok" {
		t.Errorf("without the pin, with the same overlay: %+v", st)
	}
	t.Run("a running node refuses and goes on", func(t *testing.T) { f.refuseWhileRunning(t, s, previous) })
	t.Run("a live change", func(t *testing.T) { f.liveChange(t, s, previous) })
	t.Run("another layer", func(t *testing.T) { f.swap(t, m, s, first.Layer, newest) })
}

// refusedAndPinned boots a node that is shown the overlay of another: it waits for its own,
// and has it with the layer before the newest.
func (f *Fleet) refusedAndPinned(t *testing.T, previous string) (*machine.Machine, *machine.Session) {
	t.Helper()
	if err := f.Impersonate(t.Context(), "beta", "alpha"); err != nil {
		t.Fatal(err)
	}
	m := f.boot(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b"})
	waitFor(t, m, 0, "caisson: refused:wrong-machine") // it knows only its hardware
	waitFor(t, m, 0, "THIS NODE DOES NOT COME UP: what the registry has for it is refused (wrong-machine)")
	waitFor(t, m, 0, "it tries again in")
	f.must(t, "pin", f.To(), "--node", "beta", "--layer", previous, "--reason", "going back", "--key", "keys/operator.key")
	waitFor(t, m, 0, "caisson: entering the layer")
	s := f.login(t, m)
	if st := status(t, s); st.Health != "ok" || st.Layer != f.layerOf(t, previous) {
		t.Errorf("after the pin: %+v", st)
	}
	if got := run(t, s, "command -v bc || echo none"); got != "none" {
		t.Errorf("the package of the newer layer is there: %s", got)
	}
	return m, s
}

// memory holds the running agent to its budget: 24 MiB at its peak, which is
// reached while it applies. It says nothing of speed, so it may be a test.
func (f *Fleet) memory(t *testing.T, s *machine.Session) {
	out := run(t, s, "awk '/^VmHWM|^VmRSS/{print $2}' /proc/$(systemctl show -P MainPID caisson-agent)/status")
	var peak, now int
	if _, err := fmt.Sscan(out, &peak, &now); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	t.Logf("agent: %.1f MiB at its peak, %.1f MiB now", float64(peak)/1024, float64(now)/1024)
	if peak > 24*1024 {
		t.Errorf("the agent took %d KiB", peak)
	}
}

// refuseWhileRunning shows a tampered overlay and another node's to a live node.
func (f *Fleet) refuseWhileRunning(t *testing.T, s *machine.Session, layer string) {
	for _, attack := range []struct {
		name, code string
		do         func() error
	}{
		{"tampered", "subject", func() error { return f.Tamper(t.Context(), "beta", `"value":"1"`, `"value":"9"`) }},
		{"another node's", "wrong-node", func() error { return f.Impersonate(t.Context(), "beta", "alpha") }},
	} {
		run(t, s, "sudo caisson-agent sync") // or the service takes what is new at a time of its own
		before := status(t, s)
		if err := attack.do(); err != nil {
			t.Fatal(err)
		}
		out := run(t, s, "sudo caisson-agent sync -o json 2>&1 >/tmp/status; echo code $?; grep -o '\"sync\": *\"[^\"]*\"' /tmp/status")
		if !strings.Contains(out, `"refused": "`+attack.code+`"`) || !strings.Contains(out, "code 4") || !strings.Contains(out, "refused:"+attack.code) {
			t.Errorf("%s: the node says\n%s", attack.name, out)
		}
		if got := run(t, s, "cat /proc/sys/vm/swappiness"); got != "1" {
			t.Errorf("%s: the node took swappiness %s", attack.name, got)
		}
		if after := status(t, s); after.Overlay != before.Overlay || after.Generation != before.Generation || after.Health != "ok" {
			t.Errorf("%s: the node changed to %+v", attack.name, after)
		}
		f.publish(t, "--all", "--layer", layer)
	}
}

// liveChange publishes a runtime change and takes it back: no reboot, and what
// left the config has its original value again.
func (f *Fleet) liveChange(t *testing.T, s *machine.Session, layer string) {
	boot := run(t, s, "cat /proc/sys/kernel/random/boot_id")
	f.edit(t, "    kernel.panic: 30\n", "    kernel.panic: 40\n    kernel.pid_max: 100000\n")
	original := run(t, s, "cat /proc/sys/kernel/pid_max")
	f.publish(t, "--layer", layer)
	run(t, s, "sudo caisson-agent sync")
	if got := run(t, s, "cat /proc/sys/kernel/panic /proc/sys/kernel/pid_max"); got != "40\n100000" {
		t.Errorf("after the change: %q", got)
	}
	f.edit(t, "    kernel.panic: 40\n    kernel.pid_max: 100000\n", "    kernel.panic: 30\n")
	f.publish(t, "--layer", layer)
	run(t, s, "sudo caisson-agent sync")
	if got := run(t, s, "cat /proc/sys/kernel/panic /proc/sys/kernel/pid_max"); got != "30\n"+original {
		t.Errorf("after it was taken back: %q, the original was %s", got, original)
	}
	if got := run(t, s, "cat /proc/sys/kernel/random/boot_id"); got != boot {
		t.Error("the node rebooted for a runtime change")
	}
}

// swap publishes a layer with one more package, beside whose reboot nothing else waits, and
// reboots into it. A pin back waits for a reboot, too: what that boot does, which remembers
// nothing, the first one has shown.
func (f *Fleet) swap(t *testing.T, m *machine.Machine, s *machine.Session, previous, newest string) {
	boot := run(t, s, "cat /proc/sys/kernel/random/boot_id")
	f.edit(t, "    kernel.panic: 30\n", "    kernel.panic: 50\n")
	f.publish(t, "--layer", newest)
	if out := run(t, s, "sudo caisson-agent sync"); !strings.Contains(out, "waits for a reboot: another layer") {
		t.Errorf("the running node says\n%s", out)
	}
	if got := run(t, s, "cat /proc/sys/kernel/panic /proc/sys/kernel/random/boot_id"); got != "50\n"+boot {
		t.Errorf("a parameter waits with the layer: %q", got)
	}
	if st := status(t, s); st.Layer != previous || st.Staged != st.Overlay || st.Health != "ok" || st.Activity != "waiting:reboot" {
		t.Errorf("while the layer waits: %+v", st)
	}
	f.edit(t, "    kernel.panic: 50\n", "    kernel.panic: 60\n")
	f.publish(t, "--layer", newest)
	run(t, s, "sudo caisson-agent sync")
	if got := run(t, s, "cat /proc/sys/kernel/panic /proc/sys/kernel/random/boot_id"); got != "60\n"+boot {
		t.Errorf("the next parameter waits with the layer: %q", got)
	}
	s = f.reboot(t, m, s)
	if got := run(t, s, "echo 6*7 | bc"); got != "42" {
		t.Errorf("the new package prints %q", got)
	}
	if st := status(t, s); st.Layer == previous || st.Health != "ok" {
		t.Errorf("after the reboot: %+v", st)
	}

	f.must(t, "pin", f.To(), "--node", "beta", "--layer", previous, "--reason", "going back", "--key", "keys/operator.key")
	if out := run(t, s, "sudo caisson-agent sync"); !strings.Contains(out, "waits for a reboot: another layer") {
		t.Errorf("after the pin the running node says\n%s", out)
	}
	if st := status(t, s); st.Layer == previous || st.Staged == "" || st.Health != "ok" || st.Activity != "waiting:reboot" {
		t.Errorf("after the pin: %+v", st)
	}
}
