// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// fillsMemory is a unit that takes all memory, and that the kernel may not kill.
const fillsMemory = `  units:
    fill.service:
      run: started
      content: |
        [Service]
        OOMScoreAdjust=-1000
        ExecStart=/bin/sh -c 'mkdir -p /run/fill; mount -t tmpfs -o size=400% none /run/fill; sleep 20; exec dd if=/dev/zero of=/run/fill/all bs=1M'
`

// TestLongMemoryFilled gives a running node a generation that takes all of its memory while it is
// judged. No agent can start again then, and the machine has no watchdog: systemd starts it over,
// until it goes back.
func TestLongMemoryFilled(t *testing.T) {
	require.Long(t)
	f := fleet(t, "machine:\n", "health:\n  - {name: has-tree, file: /usr/bin/tree, interval: 5s, soak: 1m}\n\nmachine:\n")
	m := f.start(t, f.byHand(t, f.withDisk(t)))
	s := f.login(t, m)
	f.judged(t, s)
	f.edit(t, "  sysctl:\n", fillsMemory+"  sysctl:\n")
	f.publish(t)
	from := m.Console.Len()
	run(t, s, "sudo caisson-agent sync >&2")
	if got := run(t, s, "systemctl is-active caisson-judged.timer"); strings.TrimSpace(got) != "active" {
		t.Fatalf("what bounds the agent is %q", got)
	}
	for n := range 3 { // as a new generation that never came up
		waitFor(t, m, from, "reboot: Restarting system")
		from = m.Console.Len()
		t.Logf("started over %d times", n+1)
		if waitFor(t, m, from, "caisson: overlay of node alpha, generation 1", fmt.Sprintf("caisson: overlay of node alpha, generation %d", 2)) == "caisson: overlay of node alpha, generation 1" {
			break
		}
	}
	waitFor(t, m, from, "caisson: overlay of node alpha, generation 1")
	waitFor(t, m, from, "caisson: entering the layer")
	s = f.login(t, m)
	if st := status(t, s); st.Generation != 1 || st.Rejected == nil || st.Rejected.Generation != 2 {
		t.Errorf("%+v", st)
	}
}
