// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestLongBisectLayer publishes a layer with two more packages and another user: of what the commits' locks say the one
// is found, and its line of the site. Layers of the one package and not the other are installed for that.
func TestLongBisectLayer(t *testing.T) {
	require.Long(t)
	needs(t)
	f := example(t, programs(t), "../../examples/quickstart/site.yaml")
	f.edits(t, slices.Concat(calm, leanSite)...)
	git := func(args ...string) {
		t.Helper()
		sh(t, `cd "$1" && shift && git -c user.name=eve -c user.email=eve@example.org "$@"`, append([]string{f.Dir}, args...)...)
	}
	publish := func() {
		t.Helper()
		f.must(t, "lock", "site.yaml", "--update")
		git("add", "site.yaml", "caisson.lock")
		git("commit", "-qm", "site")
		f.build(t)
		f.publish(t)
	}
	git("init", "-q")
	publish()
	f.edit(t, "      - name: tree\n", "      - name: tree\n      - name: bc\n      - name: pv\n")
	f.edit(t, "      - user_name: admin\n", "      - user_name: eve\n      - user_name: admin\n")
	publish()
	out, err := f.Caisson(t.Context(), "bisect", "site.yaml", "--from", f.To(), "--node", "alpha", "--good", "1", "--check", "! command -v pv",
		"--timeout", "2h", "--cache", f.Dir+"/cache", "-o", "json")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Bad   string
		Parts []struct {
			Name    string
			Changes []struct{ Item, Key string }
			Origin  struct{ Line int }
		}
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(f.reads(t, "site.yaml"), "\n")
	if got.Bad != "0-2" || len(got.Parts) != 1 || got.Parts[0].Name != "layer/packages/pv" || len(got.Parts[0].Changes) != 1 || got.Parts[0].Changes[0].Key != "pv" ||
		got.Parts[0].Origin.Line == 0 || strings.TrimSpace(lines[got.Parts[0].Origin.Line-1]) != "- name: pv" {
		t.Errorf("%s", out)
	}
}
