// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestLongBisectLayer publishes a layer with another package and another user: the package is found with
// what it needs, as an image of the one layer among those of the other, and nothing is built for it.
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
	if got.Bad != "0-2" || len(got.Parts) != 1 || got.Parts[0].Name != "layer/packages" || len(got.Parts[0].Changes) == 0 || got.Parts[0].Changes[0].Key != "bc" {
		t.Errorf("%s", out)
	}
}
