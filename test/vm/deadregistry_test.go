// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongDeadRegistry boots a node that has nothing to fall back on, while its registry is
// dead: it says so on its console, on one screen, and to the fleet's service, by the
// address of its card; and it boots when the registry comes.
func TestLongDeadRegistry(t *testing.T) {
	require.Long(t)
	f := fleet(t, "machine:\n", "machine:\n  agent: {report: {url: \"http://"+guestFleet+"\"}}\n")
	page, err := f.Server(t.Context(), "fleet", "serve", "--from", f.To(), "--site", "site.yaml", "--host", "10.0.2.102", "--listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := f.byHand(t, machine.Options{Name: "beta", MAC: "52:54:00:00:00:0b"})
	registry := machine.OwnAddress()
	o.Forwards = map[string]string{guestRegistry: registry, guestFleet: page}
	m := f.start(t, o)
	waitFor(t, m, 0, "THIS NODE DOES NOT COME UP: the registry does not answer")
	waitFor(t, m, 0, "try 2,")
	waitFor(t, m, 0, "try 3,")
	for _, line := range []string{"tried   registry " + guestRegistry, "MAC 52:54:00:00:00:0b", "from 10.0.2.15", "failed  ", "back    there is no state disk", "do      look at the registry", "next    it tries again in"} {
		if !strings.Contains(m.Console.String(), line) {
			t.Errorf("the console does not say %q", line)
		}
	}
	var said string
	if !becomes(m.Console, func() bool {
		said = f.must(t, "fleet", "status", "--at", "http://"+page)
		return strings.Contains(said, "unproven: the loader of beta boots nothing")
	}) {
		t.Fatalf("the fleet's service knows nothing of it: %s", said)
	}
	if _, err := f.Server(t.Context(), "serve", "oci:out", "--listen", registry); err != nil {
		t.Fatal(err)
	}
	waitFor(t, m, 0, "caisson: entering the layer")
	if st := status(t, f.login(t, m)); st.Source != "fetched" || st.Sync != "current" || st.Health != "ok" {
		t.Errorf("%+v", st)
	}
}
