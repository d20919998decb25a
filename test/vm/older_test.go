// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/require"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
)

// firstRelease is the last commit before documents had a frozen core, sections
// and needs: the oldest loaders and layers that today's publisher must serve.
const firstRelease = "4574f736320d9cd4f3b61a404f99757237614a2b"

// older returns the programs of an earlier commit. Their tree is unpacked from the
// history of this one; the Go build cache keeps what was built.
func older(t *testing.T, commit string) (bin string) {
	t.Helper()
	if err := exec.CommandContext(t.Context(), "git", "-C", "../..", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
		require.Missing(t, "history", "commit "+commit+" is not in this clone, git fetch --unshallow gets it")
	}
	tree := t.TempDir()
	archive := filepath.Join(tree, "tree.tar")
	for _, args := range [][]string{
		{"git", "-C", "../..", "archive", "-o", archive, commit},
		{"tar", "-xf", archive, "-C", tree},
	} {
		if out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return programs(t, tree)
}

// TestOlderRelease boots a loader and a layer of the first release with what
// today's publish makes.
func TestOlderRelease(t *testing.T) {
	f, options := olderFleet(t)
	f.firstRelease(t, f.boot(t, options))
}

// TestLongOlderRelease is a fleet that changes its release and goes back.
func TestLongOlderRelease(t *testing.T) {
	require.Long(t)
	f, options := olderFleet(t)
	m := f.boot(t, options)
	s, first := f.firstRelease(t, m)

	// A layer of today needs boot files of today: an older loader reads none of its
	// description, and the node stays with its last good.
	// The first release did not sign which layer is current, so the ledger's is named.
	f.build(t, "--previous", f.To()+"@"+f.index(t))
	f.publish(t)
	s = f.reboot(t, m, s)
	if st := status(t, s); st.Layer != first.Layer || st.Source != "cached" || st.Health != "ok" {
		t.Errorf("an older loader with today's layer: %+v", st)
	}
	if err := f.Netboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = f.reboot(t, m, s)
	if st := status(t, s); st.Layer == first.Layer || st.Health != "ok" || st.Sync != "current" {
		t.Errorf("today's release: %+v", st)
	}

	f.must(t, "pin", f.To(), "--node", "alpha", "--layer", first.Layer, "--reason", "going back", "--key", "keys/operator.key")
	s = f.reboot(t, m, s)
	if st := status(t, s); st.Layer != first.Layer || st.Health != "ok" || st.Sync != "current" {
		t.Errorf("back on the first release: %+v", st)
	}
}

// olderFleet has boot files and a layer of the first release, and today's programs.
func olderFleet(t *testing.T) (*Fleet, Options) {
	t.Helper()
	needs(t)
	f := fleetWith(t, older(t, firstRelease))
	f.Bin = programs(t, "../..")
	o := f.withDisk(t)
	f.edit(t, "    kernel.panic: 30\n", "    kernel.panic: 40\n")
	// The first release signed layers, not which of them is current.
	if out, err := f.Caisson(t.Context(), "publish", "site.yaml", "--to", f.To(), "--key", "keys/operator.key"); err == nil || !strings.Contains(err.Error(), "--layer names another by digest") {
		t.Fatalf("a layer that nobody called current is published: %v\n%s", err, out)
	}
	f.publish(t, "--layer", f.index(t))
	return f, o
}

// index returns the digest of the index that is current.
func (f *Fleet) index(t *testing.T) string {
	t.Helper()
	r, err := f.open()
	if err != nil {
		t.Fatal(err)
	}
	raw, _, err := r.Manifest(t.Context(), oci.RepoLayer, "current")
	if err != nil {
		t.Fatal(err)
	}
	return oci.Digest(raw)
}

// firstRelease sees that a node of the first release takes what today's publish
// made, at its boot and while it runs.
func (f *Fleet) firstRelease(t *testing.T, m *Machine) (*Session, spec.Status) {
	t.Helper()
	s := f.login(t, m)
	first := status(t, s)
	if first.Source != "fetched" || first.Sync != "current" || first.Health != "ok" || first.Generation < 2 {
		t.Errorf("the first release with today's overlay: %+v", first)
	}
	f.edit(t, "    kernel.panic: 40\n", "    kernel.panic: 50\n")
	f.publish(t, "--layer", f.index(t))
	run(t, s, "sudo caisson-agent sync")
	if got := run(t, s, "cat /proc/sys/kernel/panic"); got != "50" {
		t.Errorf("kernel.panic is %s", got)
	}
	return s, first
}
