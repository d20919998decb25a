// SPDX-License-Identifier: Apache-2.0

package roles

import (
	"encoding/json"
	"os/exec"
	"testing"

	"github.com/caisson-os/caisson/sandbox"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/vm"
)

// TestLongRoles builds the layer of each role, boots its node without a disk and, where that may
// differ, with one, and asks for what its packages are there to do.
func TestLongRoles(t *testing.T) {
	require.Long(t)
	require.Root(t)
	require.Net(t)
	require.Tool(t, "qemu-system-x86_64", "busybox", "mmdebstrap", "mksquashfs", "sgdisk", "mkfs.ext4")
	f := &vm.Fleet{Dir: "testdata", Bin: t.TempDir(), Show: t.Output()}
	if out, err := exec.CommandContext(t.Context(), "make", "-s", "-C", "../..", "build", "BIN="+f.Bin).CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	for _, r := range roles {
		t.Run(r.site+"/diskless", func(t *testing.T) { r.boots(t, f) })
		if r.disk {
			t.Run(r.site+"/disk", func(t *testing.T) { r.boots(t, f, "--disk") })
		}
	}
}

// boots has each check of a role answered by its booted node.
func (r role) boots(t *testing.T, f *vm.Fleet, more ...string) {
	args := append([]string{"try", r.site + ".yaml", "--node", "node", "-o", "json", "--timeout", "1h"}, more...)
	for _, d := range r.does {
		args = append(args, "--check", d.command)
	}
	out, err := f.Caisson(t.Context(), args...)
	var got struct {
		Passed bool
		Reason string
		Checks []sandbox.Check
	}
	if jsonErr := json.Unmarshal([]byte(out), &got); jsonErr != nil {
		t.Fatalf("%v: %v", err, jsonErr)
	}
	for i, c := range got.Checks {
		if !c.Passed {
			t.Errorf("%s: %s ends with %d:\n%s", r.does[i].what, c.Command, c.Exit, c.Output)
		}
	}
	if !got.Passed || len(got.Checks) != len(r.does) {
		t.Errorf("%d of %d checks, %s: %v", len(got.Checks), len(r.does), got.Reason, err)
	}
}
