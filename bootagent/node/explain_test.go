// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// The status says why something is not as wanted, though only a
// run tries and finds out; and no more of it once something else is wrong.
func TestStatusSaysWhyARunFailed(t *testing.T) {
	require.Root(t)
	m := newMachine(t)
	mount := func(name string) spec.Mount {
		return spec.Mount{ID: name, Device: "x", Type: "nosuchfs", Target: m.root + "/" + name}
	}
	m.publishItems(1, layerNamed("a"), spec.Items{Mounts: []spec.Mount{mount("mnt")}})
	m.boot()
	m.apply()
	why := func() string {
		t.Helper()
		n := m.open()
		defer n.Close() // the test is over
		st, err := n.look.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st.Items[slices.IndexFunc(st.Items, func(s spec.ItemStatus) bool { return s.Name == "mounts" })].Error
	}
	const reason = `the kernel has no file system "nosuchfs"`
	if got := why(); !strings.Contains(got, reason) {
		t.Errorf("status says %q", got)
	}
	if err := os.WriteFile(m.root+"/proc/self/mountinfo", []byte("30 1 0:9 / "+m.root+"/mnt rw - tmpfs other rw\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := why(); !strings.Contains(got, "something else is mounted there") || strings.Contains(got, reason) {
		t.Errorf("when something else is wrong, status says %q", got)
	}
}
