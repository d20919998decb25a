// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestLongRehearseClasses rehearses a change that needs another kernel command line, by kexec on a node
// without a disk. All comes back.
func TestLongRehearseClasses(t *testing.T) {
	require.Long(t)
	needs(t)
	f := &Fleet{Dir: t.TempDir(), Bin: programs(t), Show: t.Output()}
	if err := f.UseExample("../../examples/quickstart/site.yaml"); err != nil {
		t.Fatal(err)
	}
	f.edits(t, calm...)
	for _, role := range []string{"release", "operator", "attestation"} {
		f.must(t, "keys", "generate", "keys/"+role)
	}
	f.edit(t, "  exec:\n    10-hello:\n", "  exec:\n    10-hello:\n      revert: \"#!/bin/sh\\nrm -f /run/hello\\n\"\n")
	f.build(t)
	f.publish(t)
	f.edit(t, "transparent_hugepage=never", "transparent_hugepage=always")
	out, err := f.Caisson(t.Context(), "rehearse", "site.yaml", "--from", f.To(), "--node", "beta", "-o", "json", "--timeout", "2h",
		"--check", "grep -q transparent_hugepage=always /proc/cmdline")
	var got struct {
		Passed                 bool
		Reason, Said, Happened string
		Left                   []struct{ Kind, Key, Before, After string }
	}
	if bad := json.Unmarshal([]byte(out), &got); bad != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err != nil || !got.Passed || got.Said != "kexec" || got.Happened != "kexec" || len(got.Left) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
