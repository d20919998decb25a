// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// A machine that does not come up starts over by itself: nobody touches it in these
// tests.

// TestLongDeadKernel stops a node's kernel for good: it panics, and is told to stay
// so. The hardware's watchdog, handed from the loader to systemd, starts the machine
// over.
func TestLongDeadKernel(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	m := f.start(t, f.byHand(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b", Extra: []string{"-device", "i6300esb"}}))
	s := f.login(t, m)
	if got := run(t, s, "systemctl show -P RuntimeWatchdogUSec"); got != "1min" {
		t.Fatalf("systemd feeds no watchdog: %q", got)
	}
	from := m.Console.Len()
	last(t, m, s, "sudo sh -c 'echo 0 >/proc/sys/kernel/panic; echo c >/proc/sysrq-trigger'")
	waitFor(t, m, from, "Kernel panic")
	waitFor(t, m, from, "caisson: hardware watchdog")
	waitFor(t, m, from, "caisson: entering the layer")
}

// TestLongDeadline publishes kernel arguments with which systemd comes up, and the
// agent does not. Half an hour that its script may take is not waited for.
func TestLongDeadline(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	o, first := f.proven(t)
	f.edit(t, "args: [transparent_hugepage=never]", "args: [transparent_hugepage=never, systemd.unit=emergency.target, caisson.deadline=20]")
	f.publish(t)
	m := f.start(t, o)
	from := 0
	for range 3 {
		waitFor(t, m, from, "caisson: entering the layer")
		from = m.Console.Len()
	}
	f.lastGood(t, m, from, first)
}

// lastGood waits for the boot after three failed attempts.
func (f *Fleet) lastGood(t *testing.T, m *machine.Machine, from int, first spec.Status) {
	t.Helper()
	waitFor(t, m, from, "caisson: booting the last good overlay")
	s := f.login(t, m)
	if st := status(t, s); st.Source != "cached" || st.Sync != "behind" || st.Generation != first.Generation || st.Health != spec.HealthDegraded || !strings.Contains(st.HealthDetail, "none came up") {
		t.Errorf("after three attempts: %+v", st)
	}
}

// TestLongPanic publishes kernel arguments with which no kernel comes up. Each
// attempt panics before /init and starts over by itself; after the third the node
// runs its last good generation, and says so. Nobody touches the machine.
func TestLongPanic(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	o, first := f.proven(t)
	f.edit(t, "args: [transparent_hugepage=never]", "args: [transparent_hugepage=never, mem=48M]")
	f.publish(t)
	m := f.start(t, o)
	from := 0
	for range 3 {
		waitFor(t, m, from, "caisson: kexec: kernel")
		waitFor(t, m, from, "Kernel panic")
		from = m.Console.Len()
	}
	f.lastGood(t, m, from, first)
}
