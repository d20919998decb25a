// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// reserved is memory that no kernel of this node uses, so that it outlives a restart: in
// the middle, since firmware works below and puts the initrd on top.
const reserved = "memmap=1M$0x20000000 ramoops.mem_address=0x20000000 ramoops.mem_size=0x100000 ramoops.record_size=0x20000"

// TestLongPStore has the kernel of a diskless node panic. The next boot has its last lines,
// from memory that outlived the restart, and why says them.
func TestLongPStore(t *testing.T) {
	require.Long(t)
	f := fleet(t, "net.ifnames=0]}", "net.ifnames=0, "+strings.ReplaceAll(reserved, " ", ", ")+"], modules: [network, storage, ramoops]}",
		"kernel.panic: 30", "kernel.panic: 3")
	o := f.byHand(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b"})
	m := f.start(t, o)
	s := f.login(t, m)
	if got := run(t, s, "sudo ls /sys/fs/pstore"); got != "" {
		t.Fatalf("a new machine has in pstore: %s", got)
	}
	if got := run(t, s, "sudo caisson-agent why || true"); strings.Contains(got, "crashed") {
		t.Errorf("before it happened:\n%s", got)
	}
	from := m.Console.Len()
	last(t, m, s, "echo 'these are the last words' | sudo tee /dev/kmsg; echo c | sudo tee /proc/sysrq-trigger")
	waitFor(t, m, from, "Kernel panic")
	waitFor(t, m, from, "caisson: entering the layer")
	s = f.login(t, m)
	got := run(t, s, "sudo caisson-agent why || true; sudo caisson-agent why -o json || true")
	for _, want := range []string{"crashed", "sysrq triggered crash", "these are the last words"} {
		if !strings.Contains(got, want) {
			t.Errorf("why does not say %q", want)
		}
	}
	t.Logf("why:\n%s", got)
}
