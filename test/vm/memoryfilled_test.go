// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

const fillsMemory = "exec tail /dev/zero"

// A running node gets a generation that has the machine stand still while it is judged: it takes all memory,
// or stops the first process. Whether the agent finds that a check fails, systemd that no agent looks, or a
// watchdog, the hardware's or the kernel's, that the first process is gone: it ends on the generation before.
func TestLongMemoryFilled(t *testing.T) {
	require.Long(t)
	standsStill(t, fillsMemory)
}
func TestLongMemoryFilledWithAWatchdog(t *testing.T) {
	require.Long(t)
	standsStill(t, fillsMemory, "-device", "i6300esb")
}
func TestLongFirstProcessFrozen(t *testing.T) {
	require.Long(t)
	standsStill(t, "echo 1 >/sys/fs/cgroup/init.scope/cgroup.freeze; exec sleep infinity")
}

// standsStill publishes a unit that does something, and that the kernel may not kill, to a machine of QEMU
// with more arguments.
func standsStill(t *testing.T, does string, extra ...string) {
	t.Helper()
	f := fleet(t, "machine:\n", "health:\n  - {name: runs, command: [/usr/bin/tree, --version], interval: 5s, timeout: 5s, retries: 5, soak: 2m}\n\nmachine:\n")
	o := f.byHand(t, f.withDisk(t))
	o.Extra = append(o.Extra, extra...)
	m := f.start(t, o)
	s := f.login(t, m)
	f.judged(t, s)
	const own = "systemctl is-active caisson-softdog || true; systemctl show -P RuntimeWatchdogUSec"
	proved, judged := "inactive\n0", "active\n1min"
	if extra != nil {
		proved, judged = "inactive\n1min", "inactive\n1min"
	}
	if got := run(t, s, "while systemctl is-active -q caisson-softdog; do sleep 1; done; "+own); got != proved {
		t.Fatalf("a generation that has proved itself: %q", got)
	}
	f.edit(t, "  sysctl:\n", "  units:\n    stands.service:\n      run: started\n      content: |\n        [Service]\n        OOMScoreAdjust=-1000\n"+
		"        ExecStart=/bin/sh -c 'sleep 30; "+does+"'\n  sysctl:\n")
	f.publish(t)
	from := m.Console.Len()
	run(t, s, "sudo caisson-agent sync >&2")
	if got := run(t, s, "systemctl is-active caisson-judged.timer; while systemctl is-active caisson-softdog | grep -q activating; do sleep 1; done; "+own); got != "active\n"+judged {
		t.Fatalf("while it is judged: %q", got)
	}
	f.endsOnTheOneBefore(t, m, from)
}

// endsOnTheOneBefore waits until generation 1 runs again: each boot, of which a generation has three, for as
// long as one step may take. A machine that hangs as it stops is silent for ten minutes: systemd's RebootWatchdogSec.
func (f *Fleet) endsOnTheOneBefore(t *testing.T, m *machine.Machine, from int) {
	t.Helper()
	const good, bad = "caisson: overlay of node alpha, generation 1", "caisson: overlay of node alpha, generation 2"
	for boots := 0; ; {
		var entered string
		back := func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var err error
			if entered, err = m.Console.Wait(ctx, from, good, bad); err == nil {
				return true
			}
			ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			st, err := f.asks(ctx, m)
			return err == nil && st.Generation == 1 && st.Rejected != nil && st.Rejected.Generation == 2
		}
		if !becomes(m.Console, back) {
			t.Fatalf("it stands still after %d boots", boots)
		}
		if entered == "" {
			return
		}
		boots, from = boots+1, m.Console.Len()
		t.Logf("started over %d times, %s", boots, entered)
		if entered == bad && boots > 3 {
			t.Fatal("it does not go back")
		}
	}
}

// asks logs in and asks for the status, which one that stands still does not say.
func (f *Fleet) asks(ctx context.Context, m *machine.Machine) (st spec.Status, err error) {
	s, err := m.Login(ctx, "admin", f.Key)
	if err != nil {
		return st, err
	}
	defer s.Close() // it has answered, or never will
	out, err := s.Run(ctx, "sudo caisson-agent status -o json || [ $? -eq 3 ]")
	if err != nil {
		return st, err
	}
	return st, json.Unmarshal([]byte(out), &st)
}
