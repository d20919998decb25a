// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"fmt"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// cutOff are what cuts a node off when it is read, and not before: by a boot.
var cutOff = map[string]string{
	"a file of networkd": "  files: {/etc/systemd/network/00-other.network: {content: \"[Match]\\nName=eth0\\n[Network]\\nAddress=192.0.2.77/24\\n\"}}\n",
}

// TestLongBootsThatCutOff gives a running node what only a boot reads, on its own layer and with no
// health check in its site: the change of the running node is current, and the boot that reads it
// goes back by itself to what a boot has proved, and the node says why.
func TestLongBootsThatCutOff(t *testing.T) {
	require.Long(t)
	f := fleet(t)
	m := f.start(t, f.byHand(t, f.withDisk(t)))
	s := f.login(t, m)
	generation := uint64(1)
	for what, text := range cutOff {
		f.edit(t, "  sysctl:\n", text+"  sysctl:\n")
		f.publish(t)
		run(t, s, "sudo caisson-agent sync >&2")
		good, bad := generation, generation+1
		if st := status(t, s); st.Generation != bad || st.Health != spec.HealthOK {
			t.Fatalf("%s: a running node: %+v", what, st)
		}
		from := m.Console.Len()
		last(t, m, s, "sudo systemctl reboot")
		waitFor(t, m, from, fmt.Sprintf("caisson: overlay of node alpha, generation %d", bad))
		waitFor(t, m, from, "caisson: entering the layer")
		from = m.Console.Len()
		waitFor(t, m, from, "it was rejected on this node")
		waitFor(t, m, from, "caisson: entering the layer")
		s = f.login(t, m)
		var st spec.Status
		if !becomes(func() bool {
			st = status(t, s)
			return strings.Contains(run(t, s, "sudo journalctl -t caisson-agent -o cat --no-pager; sudo caisson-agent why -o json || true"), "without it the registry answers")
		}) {
			t.Errorf("%s: nothing was compared: %+v", what, st)
		}
		if st.Generation != good || st.Rejected == nil || st.Rejected.Generation != bad || !strings.Contains(st.Rejected.Reason, "registry is reached") {
			t.Errorf("%s: %+v", what, st)
		}
		f.edit(t, text, "")
		f.publish(t)
		run(t, s, "sudo caisson-agent sync >&2 || true")
		generation += 2
		if st := f.judged(t, s); st.Generation != generation || st.Rejected != nil {
			t.Errorf("%s: what came after it is not taken: %+v", what, st)
		}
		s = f.reboot(t, m, s) // so that a boot has proved it
		if st := f.judged(t, s); st.Generation != generation || st.Health != spec.HealthOK {
			t.Errorf("%s: %+v", what, st)
		}
	}
}
