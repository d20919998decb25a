// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestLongRehearseClasses rehearses changes that need another root: by kexec on a node without a
// disk, and by a soft-reboot to a layer of the registry on one with a disk, whose statement a rollout
// takes. All comes back.
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
	rehearse := func(class string, more ...string) {
		t.Helper()
		out, err := f.Caisson(t.Context(), append([]string{"rehearse", "site.yaml", "--from", f.To(), "--node", "beta", "-o", "json", "--timeout", "2h"}, more...)...)
		var got struct {
			Passed                 bool
			Reason, Said, Happened string
			Left                   []struct{ Kind, Key, Before, After string }
		}
		if bad := json.Unmarshal([]byte(out), &got); bad != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err != nil || !got.Passed || got.Said != class || got.Happened != class || len(got.Left) > 0 {
			t.Errorf("%s: %v\n%s", class, err, out)
		}
	}
	f.edit(t, "transparent_hugepage=never", "transparent_hugepage=always")
	rehearse("kexec", "--check", "grep -q transparent_hugepage=always /proc/cmdline")
	f.edit(t, "transparent_hugepage=always", "transparent_hugepage=never")

	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.edit(t, "              vm.swappiness: 1\n", "              vm.swappiness: 1\n---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: roll}\nspec: {waves: [{rest: true}], rehearsed: layer}\n")
	f.build(t)
	start := []string{"rollout", "start", "roll", "site.yaml", "--to", f.To(), "--key", "keys/operator.key", "--dry-run"}
	if said := f.must(t, start...); !strings.Contains(said, "is not rehearsed") {
		t.Errorf("before: %s", said)
	}
	rehearse("soft-reboot", "--disk", "--push", "--check", "command -v bc")
	if said := f.must(t, start...); strings.Contains(said, "is not rehearsed") {
		t.Errorf("with a statement: %s", said)
	}
}
