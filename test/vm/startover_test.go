// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"testing"

	"github.com/caisson-os/caisson/internal/require"
)

// TestLongDeadKernel stops a node's kernel for good: it panics, and is told to stay
// so. The hardware's watchdog, handed from the loader to systemd, starts the machine
// over.
func TestLongDeadKernel(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	m := f.start(t, f.byHand(t, Options{Name: "beta", MAC: "52:54:00:00:00:0b", Extra: []string{"-device", "i6300esb"}}))
	s := f.login(t, m)
	if got := run(t, s, "systemctl show -P RuntimeWatchdogUSec"); got != "1min" {
		t.Fatalf("systemd feeds no watchdog: %q", got)
	}
	from := m.Console.Len()
	_, _ = s.Run(t.Context(), "sudo sh -c 'echo 0 >/proc/sys/kernel/panic; echo c >/proc/sysrq-trigger'") // the connection dies with the kernel
	waitFor(t, m, from, "Kernel panic")
	waitFor(t, m, from, "caisson: hardware watchdog")
	waitFor(t, m, from, "caisson: entering the layer")
}
