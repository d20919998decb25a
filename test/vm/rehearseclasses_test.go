// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestLongRehearseClasses rehearses a change that needs another kernel command line, by kexec on a node
// without a disk. All comes back.
func TestLongRehearseClasses(t *testing.T) {
	require.Long(t)
	f := rehearsed(t)
	f.edit(t, "transparent_hugepage=never", "transparent_hugepage=always")
	f.rehearse(t, "kexec", "--check", "grep -q transparent_hugepage=always /proc/cmdline",
		"--check", "systemctl show -P JobRunningTimeoutUSec dev-ttyS0.device | grep -x 20min") // nor is its getty given up
}

// TestLongRehearseSoftReboot rehearses a layer with one package more on a node with a disk, by a
// soft-reboot there and one back. All comes back, and a rollout takes its statement.
func TestLongRehearseSoftReboot(t *testing.T) {
	require.Long(t)
	f := rehearsed(t)
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.edit(t, "              vm.swappiness: 1\n", "              vm.swappiness: 1\n---\napiVersion: caisson.dev/v1alpha1\nkind: Rollout\nmetadata: {name: roll}\nspec: {waves: [{rest: true}], rehearsed: layer}\n")
	f.build(t)
	start := []string{"rollout", "start", "roll", "site.yaml", "--to", f.To(), "--key", "keys/operator.key", "--dry-run"}
	if said := f.must(t, start...); !strings.Contains(said, "is not rehearsed") {
		t.Errorf("before: %s", said)
	}
	f.rehearse(t, "soft-reboot", "--disk", "--push", "--attest-key", "keys/attestation.key", "--check", "command -v bc")
	if said := f.must(t, start...); strings.Contains(said, "is not rehearsed") {
		t.Errorf("with a statement: %s", said)
	}
}

// rehearsed is the quickstart, published, with a script that takes back what it writes.
func rehearsed(t *testing.T, edits ...string) *Fleet {
	t.Helper()
	needs(t)
	f := &Fleet{Dir: t.TempDir(), Bin: programs(t), Show: t.Output()}
	if err := f.UseExample("../../examples/quickstart/site.yaml"); err != nil {
		t.Fatal(err)
	}
	f.edits(t, slices.Concat(calm, edits)...)
	for _, role := range []string{"release", "operator", "attestation"} {
		f.must(t, "keys", "generate", "keys/"+role)
	}
	f.edit(t, "  exec:\n    10-hello:\n", "  exec:\n    10-hello:\n      revert: \"#!/bin/sh\\nrm -f /run/hello\\n\"\n")
	f.build(t)
	f.publish(t)
	return f
}

// rehearse rehearses the site, which has to pass by a class, and to come back whole.
func (f *Fleet) rehearse(t *testing.T, class string, more ...string) {
	t.Helper()
	f.rehearseLeaves(t, class, nil, more...)
}

// rehearseLeaves rehearses a change of a class that leaves some things, by kind and key, and nothing else.
func (f *Fleet) rehearseLeaves(t *testing.T, class string, left []string, more ...string) {
	t.Helper()
	f.rehearseOn(t, "beta", class, left, more...)
}

// rehearseOn is the same for any node.
func (f *Fleet) rehearseOn(t *testing.T, node, class string, left []string, more ...string) {
	t.Helper()
	out, err := f.Caisson(t.Context(), append([]string{"rehearse", "site.yaml", "--from", f.To(), "--node", node, "-o", "json", "--timeout", "2h"}, more...)...)
	var got struct {
		Passed                 bool
		Reason, Said, Happened string
		Left                   []struct{ Kind, Key, Before, After string }
		Silent                 map[string]float64
		Fetched                int64
		Steps                  []struct{ ProcessorSeconds float64 }
	}
	if bad := json.Unmarshal([]byte(out), &got); bad != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var stayed []string
	for _, d := range got.Left {
		stayed = append(stayed, d.Kind+" "+d.Key)
	}
	seen := strings.Replace(class, "service restart", "live", 1)
	if (err != nil) != (left != nil) || !got.Passed || got.Said != class || got.Happened != seen || !slices.Equal(stayed, left) {
		t.Errorf("%s: %v\n%s", class, err, out)
	}
	took := 0.0
	for _, step := range got.Steps {
		took += step.ProcessorSeconds
	}
	if t.Logf("%s: %.0f seconds of a processor", class, took); seen == "live" && took > 8*60 {
		t.Errorf("a live change took %.0f seconds of an emulated processor", took)
	}
	if quiet := got.Silent["ping"] > 0; quiet != (seen == "reboot" || seen == "kexec") && seen != "soft-reboot" || got.Fetched == 0 {
		t.Errorf("%s: silent %v, %d bytes fetched", class, got.Silent, got.Fetched)
	}
}
