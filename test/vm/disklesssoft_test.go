// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongDisklessSoftReboot has a node without a state disk go to a layer that has one
// package more and an image that is larger than the agent's service may be elsewhere, and
// back, on one kernel: memory does not grow. It takes about ten minutes.
func TestLongDisklessSoftReboot(t *testing.T) {
	require.Long(t)
	f := fleet(t, "machine:\n", "machine:\n  agent: {poll: 1m}\n")
	m := f.boot(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b", Memory: 1536, Extra: []string{"-device", "i6300esb"}})
	s := f.login(t, m)
	first := status(t, s)
	if first.Health != "ok" || first.Sync != "current" {
		t.Fatalf("first boot: %+v", first)
	}
	if got := run(t, s, "systemctl show -P MemoryHigh caisson-agent"); got != "infinity" {
		t.Errorf("the service may hold images of %s bytes", got)
	}
	const same = "cat /proc/sys/kernel/random/boot_id /etc/machine-id /etc/ssh/ssh_host_ed25519_key.pub; ip -4 -o addr show eth0 | grep -o 'inet [^ ]*'"
	const inMemory = "grep Shmem: /proc/meminfo"
	before, held, files := run(t, s, same), heldInMemory(t, s), run(t, s, inMemory)

	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.build(t, "--agent", f.largeAgent(t, 300<<20))
	f.publish(t)
	run(t, s, "sudo caisson-agent sync")
	staged(t, s)
	peak, err := strconv.Atoi(run(t, s, "systemctl show -P MemoryPeak caisson-agent"))
	if err != nil || peak < 256<<20 {
		t.Errorf("the service had %d bytes at its peak, and never needed more than it may have elsewhere: %v", peak, err)
	}
	s, more := f.leapInMemory(t, m, s)
	second := status(t, s)
	if second.Layer == first.Layer || second.Health != "ok" || second.Sync != "current" || second.RootID == first.RootID || second.Staged != "" {
		t.Errorf("after the soft-reboot: %+v", second)
	}
	if got := run(t, s, same); got != before {
		t.Errorf("after the soft-reboot the node is\n%s\nbefore\n%s", got, before)
	}
	if got := run(t, s, "echo 6*7 | bc; systemctl show -P RuntimeWatchdogUSec; sudo test -e /run/caisson/deadline || echo proven; systemctl --failed --plain --no-legend"); got != "42\n1min\nproven" {
		t.Errorf("the new root: %q", got)
	}
	after := heldInMemory(t, s)
	if more <= held+300<<10 || after >= more {
		t.Errorf("images have %d KiB at first, %d with the next layer, %d when it has proved itself", held, more, after)
	}

	run(t, s, "sudo caisson-agent rollback >&2 || [ $? -eq 3 ]")
	s, more = f.leapInMemory(t, m, s)
	if st := status(t, s); st.Layer != first.Layer || st.Health != "ok" || st.Tracking != spec.Held {
		t.Errorf("after the way back: %+v", st)
	}
	if got := run(t, s, same+"; ! bc --version 2>/dev/null"); got != before {
		t.Errorf("after the way back the node is\n%s\nbefore\n%s", got, before)
	}
	run(t, s, "sudo caisson-agent sync")
	end := heldInMemory(t, s)
	t.Logf("images have %d KiB at first, %d after the first soft-reboot, %d with both layers, %d after the second; in memory were in all %s, %s at the end",
		held, after, more, end, files, run(t, s, inMemory))
	if end > held+64 { // the same images, and indexes of the chunks that they were made of
		t.Errorf("images have %d KiB after the way back, %d at first", end, held)
	}
}

// staged waits until a node has what it can go softly to.
func staged(t *testing.T, s *machine.Session) {
	t.Helper()
	var st spec.Status
	if !becomes(s.Console, func() bool {
		st = status(t, s)
		return strings.Contains(st.ActivityDetail, " is staged: soft-reboot: ")
	}) {
		t.Fatalf("nothing is staged: %+v", st)
	}
}

// leapInMemory has a node go softly to what waits as soon as it is staged, and says how many
// KiB images have then.
func (f *Fleet) leapInMemory(t *testing.T, m *machine.Machine, s *machine.Session) (*machine.Session, int) {
	t.Helper()
	staged(t, s)
	more := heldInMemory(t, s)
	s = f.leaps(t, m, s)
	t.Logf("%s", run(t, s, "cat /run/said"))
	return s, more
}

// leaps has a node go softly to what waits, and logs in again.
func (f *Fleet) leaps(t *testing.T, m *machine.Machine, s *machine.Session) *machine.Session {
	t.Helper()
	from := m.Console.Len()
	run(t, s, "sudo sh -c 'caisson-agent reboot >/run/said 2>&1 </dev/null &'")
	if waitFor(t, m, from, "Soft-rebooting", "caisson: entering the layer") != "Soft-rebooting" {
		t.Fatal("the machine was started over")
	}
	return f.login(t, m)
}

// heldInMemory is how many KiB the images of a node without a state disk have. None of them
// is one that was deleted and is still in use.
func heldInMemory(t *testing.T, s *machine.Session) (kib int) {
	t.Helper()
	out := run(t, s, "sudo du -sk /run/caisson/store | cut -f1; grep -c deleted /sys/block/loop*/loop/backing_file | grep -v :0$ || true")
	if _, err := fmt.Sscan(out, &kib); err != nil || strings.Contains(out, "loop") {
		t.Fatalf("%q: %v", out, err)
	}
	return kib
}
