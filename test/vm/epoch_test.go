// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/tpmtest"
)

// TestLongOldDisk puts a copy of a state disk back that is from before the fleet's epoch was raised. The
// machine's TPM knows the epoch, so nothing of the copy is booted while the registry is dead; the same copy in a machine
// without a TPM is. With the registry the node takes an overlay of that epoch.
func TestLongOldDisk(t *testing.T) {
	require.Long(t)
	f := withEpochKey(t)
	o := f.byHand(t, f.withDisk(t))
	o.Extra = tpmtest.ForMachine(t)
	m, s := f.arrives(t, o)
	run(t, s, "sync")
	old := filepath.Join(f.Dir, "old.raw")
	put := func() { t.Helper(); sh(t, `cp --sparse=always "$1" "$2"`, old, o.Disk) }
	sh(t, `cp --sparse=always "$1" "$2"`, o.Disk, old) // as a cut would leave it

	f.publish(t, "--epoch", "1", "--epoch-key", "keys/epoch.key")
	run(t, s, "sudo caisson-agent sync")
	if st := status(t, s); st.Floor.Epoch != 1 {
		t.Fatalf("the node has not accepted the epoch: %+v", st)
	}
	m.PowerCut()

	dead := o
	dead.Forwards = map[string]string{guestRegistry: "127.0.0.1:1"} // nobody listens there
	put()
	const waits = "the TPM of this machine has seen epoch 1, and the state disk knows of 0"
	m = f.start(t, dead)
	waitFor(t, m, 0, waits)
	waitFor(t, m, 0, "THIS NODE DOES NOT COME UP")
	if strings.Contains(m.Console.String(), "caisson: entering the layer") {
		t.Error("something of before was booted")
	}
	m.PowerCut()

	put()
	m = f.start(t, o)
	if st := status(t, f.login(t, m)); st.Sync != "current" || st.Epoch != 1 || !strings.Contains(st.HealthDetail, waits) {
		t.Errorf("with its registry: %+v", st)
	}
	m.PowerCut()

	put()
	dead.Extra = nil
	waitFor(t, f.start(t, dead), 0, "booting the last good overlay, generation 1")
}

// withEpochKey is the quickstart's fleet with a key that raises its epoch.
func withEpochKey(t *testing.T) *Fleet {
	t.Helper()
	needs(t)
	f := example(t, programs(t), "../../examples/quickstart/site.yaml")
	f.must(t, "keys", "generate", "keys/epoch")
	f.edits(t, slices.Concat(calm, noted, leanSite)...)
	f.edit(t, "registry: oci:./out\n", "registry: oci:./out\ntrust: {keys: {epoch: keys/epoch.pub}}\n")
	f.raise(t)
	return f
}
