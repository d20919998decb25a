// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestLongBisect plants a sysctl in the second of three generations, beside other settings: it is
// found by its generation, its name, and the line of the site that has it. A search of one machine
// a run goes on where it was.
func TestLongBisect(t *testing.T) {
	require.Long(t)
	needs(t)
	f := example(t, programs(t), "../../examples/quickstart/site.yaml")
	f.edits(t, slices.Concat(calm, leanSite)...)
	f.build(t)
	f.publish(t)
	f.edit(t, "  sysctl:\n", "  sysctl:\n    vm.overcommit_memory: 1\n    vm.dirty_ratio: 33\n    vm.dirty_background_ratio: 7\n")
	f.publish(t, "--reason", "more memory")
	f.edit(t, "kernel.panic: 30", "kernel.panic: 31")
	f.publish(t)

	bisect := func(most, check string) (string, error) {
		return f.Caisson(t.Context(), "bisect", "site.yaml", "--from", f.To(), "--node", "alpha", "--good", "1", "--check", check, "--most", most,
			"--timeout", "2h", "--cache", f.Dir+"/cache", "-o", "json")
	}
	out, err := bisect("1", "test $(sysctl -n vm.dirty_ratio) -ne 33")
	if err == nil || !strings.Contains(err.Error(), "the same command goes on") {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err = bisect("20", "test $(sysctl -n vm.dirty_ratio) -ne 33")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Good, Bad, Reason, Why string
		Parts                  []struct {
			Name    string
			Changes []struct{ To string }
			Origin  struct {
				File string
				Line int
			}
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Good != "0-1" || got.Bad != "0-2" || got.Reason != "more memory" || len(got.Parts) != 1 || got.Parts[0].Name != "sysctl/vm.dirty_ratio" || got.Parts[0].Changes[0].To != "33" {
		t.Fatalf("%s", out)
	}
	site, err := os.ReadFile(filepath.Join(f.Dir, "site.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if at := got.Parts[0].Origin; filepath.Base(at.File) != "site.yaml" || !strings.Contains(strings.Split(string(site), "\n")[at.Line-1], "vm.dirty_ratio: 33") {
		t.Errorf("%s", out)
	}
	if left, _ := filepath.Glob(filepath.Join(f.Dir, "cache/bisect/*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestLongBisectLayer publishes a layer with another package and another user: the package is found, as
// an image of the one layer among those of the other, and nothing is built for it.
func TestLongBisectLayer(t *testing.T) {
	require.Long(t)
	needs(t)
	f := example(t, programs(t), "../../examples/quickstart/site.yaml")
	f.edits(t, slices.Concat(calm, leanSite)...)
	f.build(t)
	f.publish(t)
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n")
	f.edit(t, "      - user_name: admin\n", "      - user_name: eve\n      - user_name: admin\n")
	f.build(t)
	f.publish(t)
	out, err := f.Caisson(t.Context(), "bisect", "site.yaml", "--from", f.To(), "--node", "alpha", "--good", "1", "--check", "! command -v bc",
		"--timeout", "2h", "--cache", f.Dir+"/cache", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Bad   string
		Parts []struct {
			Name    string
			Changes []struct{ Item, Key string }
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Bad != "0-2" || len(got.Parts) != 1 || got.Parts[0].Name != "layer/packages" || len(got.Parts[0].Changes) != 1 || got.Parts[0].Changes[0].Key != "bc" {
		t.Errorf("%s", out)
	}
}
