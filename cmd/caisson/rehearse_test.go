// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/test/gittest"
	"github.com/caisson-os/caisson/test/require"
)

// A machine is plugged in as the site was when what it runs was published, however the site was edited
// since. Where that cannot be told, it is said, and the site of now counts.
func TestBootNetworkOfThen(t *testing.T) {
	require.Tool(t, "git")
	repository := gittest.New(t)
	site := func(more string) string {
		return "apiVersion: caisson.dev/v1alpha1\nkind: Site\nmetadata: {name: metal}\nregistry: registry.example/metal\n" +
			"layer: {base: {debian: {suite: trixie}}, kernel: {package: linux-image-amd64}}\nnodes: [{name: a}]\nconf: {sysctl: {vm.swappiness: 7}}\n" + more
	}
	row := func(vlan string) string {
		return "bootNetwork: [{match: {driver: virtio_net}, vlan: " + vlan + ", dhcp: ipv4}]\n"
	}
	none := repository.Commit("none", map[string]string{"fleet/site.yaml": site("")})
	seven := repository.Commit("seven", map[string]string{"fleet/site.yaml": site(row("7"))})
	broken := repository.Commit("broken", map[string]string{"fleet/site.yaml": site(row("x"))})
	top := repository.Git("rev-parse", "--show-toplevel")
	name := filepath.Join(strings.TrimSpace(top), "fleet/site.yaml")
	if err := os.WriteFile(name, []byte(site(row("9"))), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{name, "fleet/site.yaml", "site.yaml"} { // as it is named from elsewhere, from above, from its directory
		switch at {
		case "fleet/site.yaml":
			t.Chdir(strings.TrimSpace(top))
		case "site.yaml":
			t.Chdir(filepath.Dir(name))
		}
		for commit, want := range map[string]struct {
			vlan int64 // -1: none
			says string
		}{
			seven: {7, ""}, none: {-1, ""}, broken: {0, "the site at commit " + broken}, "": {0, "names no commit"}, seven + "+": {0, "was not yet committed after " + seven},
			strings.Repeat("1", 40): {0, "plugged in as bootNetwork of the site is now: git"},
		} {
			var said bytes.Buffer
			a := &app{out: &said, err: &said}
			s, err := a.loadSite(at)
			if err != nil {
				t.Fatal(err, said.String())
			}
			past := a.siteAt(t.Context(), s, []string{at}, commit)
			rows := past.Boot
			if rows != nil { // and where its settings are, though the copy is gone
				e, err := past.Site.Explain("a", nil)
				if err != nil || !slices.ContainsFunc(e.Settings(), func(s explain.Setting) bool {
					return s.Has("sysctl/vm.swappiness") && s.Origin != nil && s.Origin.File == past.Dir+"/site.yaml" && s.Origin.Line == 7
				}) {
					t.Errorf("%s at %q: %+v, %v", at, commit, e, err)
				}
			}
			ok := want.vlan == 0 && rows == nil || want.vlan == -1 && rows != nil && len(rows) == 0 || want.vlan > 0 && len(rows) == 1 && rows[0].VLAN == want.vlan
			if !ok || !strings.Contains(said.String(), want.says) || want.says == "" && strings.Contains(said.String(), "plugged") {
				t.Errorf("%s at %q: %+v, said %q", at, commit, rows, said.String())
			}
		}
	}
}
