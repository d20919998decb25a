// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongBadLayer publishes a layer without a program that a health check looks for. The
// node goes to it, goes back to the layer before by itself, and says which layer and which
// check it was. How long that takes is measured in reboots of the same machine.
func TestLongBadLayer(t *testing.T) {
	require.Long(t)
	f := fleet(t, "machine:\n", "health:\n  - {name: has-tree, file: /usr/bin/tree, interval: 2s, retries: 3}\n\nmachine:\n")
	m := f.start(t, f.byHand(t, f.withDisk(t)))
	s := f.login(t, m)
	good := f.judged(t, s)
	if good.Rejected != nil || good.Sync != spec.SyncCurrent {
		t.Fatalf("first boot: %+v", good)
	}

	begun := time.Now()
	s = f.reboot(t, m, s)
	f.judged(t, s)
	plain := time.Since(begun)

	f.edit(t, "      - name: tree\n", "      - name: bc\n")
	f.build(t)
	f.publish(t)
	begun = time.Now()
	from := m.Console.Len()
	last(t, m, s, "sudo caisson-agent sync; sudo systemctl reboot")
	waitFor(t, m, from, "caisson: overlay of node alpha, generation 2")
	waitFor(t, m, from, "caisson: entering the layer")
	from = m.Console.Len()
	if waitFor(t, m, from, "Soft-rebooting", "it was rejected on this node") != "Soft-rebooting" { // the node goes by what is enough
		waitFor(t, m, from, "caisson: entering the layer")
	}
	s = f.login(t, m)
	st := f.judged(t, s)
	took := time.Since(begun)
	if st.Layer != good.Layer || st.Sync != spec.SyncBehind || st.Rejected == nil || !strings.Contains(st.Rejected.Reason, "has-tree") {
		t.Errorf("after the bad layer: %+v", st)
	}
	run(t, s, "test -x /usr/bin/tree")
	if failed := run(t, s, "systemctl list-units --failed --plain --no-legend; systemctl list-units --all --plain --no-legend 'caisson-deadline*.timer' | grep -v ' loaded ' || true"); failed != "" {
		t.Errorf("the way back left units that failed: %s", failed)
	}
	t.Logf("a plain reboot took %s, from the publish to the layer before %s: %.1f reboots", plain.Round(time.Second), took.Round(time.Second), took.Seconds()/plain.Seconds())

	var why spec.Why
	if err := json.Unmarshal([]byte(run(t, s, "sudo caisson-agent why -o json || [ $? -eq 3 ]")), &why); err != nil {
		t.Fatal(err)
	}
	if len(why.Findings) == 0 || why.Findings[0].Generation != 2 || why.Findings[0].Layer == "" || why.Findings[0].Layer == good.Layer ||
		!strings.Contains(why.Findings[0].Reason, "has-tree") || !strings.Contains(why.Findings[0].Did, "goes back to") {
		t.Errorf("why: %+v", why.Findings)
	}
}

// judged waits until nothing is judged any more.
func (f *Fleet) judged(t *testing.T, s *machine.Session) spec.Status {
	t.Helper()
	var st spec.Status
	if !becomes(s.Console, func() bool { st = status(t, s); return len(st.Checks) == 0 }) {
		t.Fatalf("its checks have no end: %+v", st)
	}
	return st
}
