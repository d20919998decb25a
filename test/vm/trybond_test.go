// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestLongTryBehindABond tries a node that is reached by a tagged VLAN on a bond by LACP, and
// has no DHCP: with the loader's row of it that metal has, and a switch that speaks both.
func TestLongTryBehindABond(t *testing.T) {
	require.Long(t)
	needs(t)
	f := &Fleet{Dir: t.TempDir(), Bin: programs(t), Show: t.Output()}
	if err := f.UseExample("../../examples/quickstart/site.yaml"); err != nil {
		t.Fatal(err)
	}
	f.edit(t, behindABond[0], behindABond[1])
	out, err := f.Caisson(t.Context(), "try", "site.yaml", "--node", "beta", "--timeout", "2h",
		"--check", "grep -q 'Partner Mac Address: 02:00:00:00:00:aa' /proc/net/bonding/bond0",
		"--check", "ip -4 -br addr show storage | grep -q 10.0.2.15/24",
		"--check", "test $(cat /sys/class/net/bond0/mtu) = 1450")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(out, "ok") {
		t.Errorf("it prints\n%s", out)
	}
}
