// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestComponents asks a suite for components that it has and has not; the second
// time apt is not asked any more.
func TestComponents(t *testing.T) {
	require.Tool(t, "apt-get", "apt-cache", "apt-config", "dpkg-deb")
	for _, c := range []struct{ listed, asked, missing string }{
		{"Components: main contrib\n", "main contrib", ""},
		{"Components: main contrib\n", "main bogus", "bogus"},
		{"Components: updates/main\n", "main", ""},
		{"Components: domain\n", "main", "main"},
		{"", "main", ""},
	} {
		dir := filepath.Join(t.TempDir(), "with_~odd=name")
		suite := filepath.Join(dir, "dists/stable")
		release := "Suite: stable\nCodename: stable\nDate: Thu, 19 Nov 2026 10:00:00 UTC\nArchitectures: all amd64\n" + c.listed + "SHA256:\n"
		for _, name := range strings.Fields(c.asked) {
			packages := filepath.Join(name, "binary-amd64/Packages")
			if err := os.MkdirAll(filepath.Dir(filepath.Join(suite, packages)), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(suite, packages), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			release += fmt.Sprintf(" %x 0 %s\n", sha256.Sum256(nil), packages)
		}
		if err := os.WriteFile(filepath.Join(suite, "Release"), []byte(release), 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := Open(context.Background(), t.TempDir(), "amd64", []Archive{{ID: "test", URI: "copy:" + dir, Suites: []string{"stable"}, Components: strings.Fields(c.asked), Trusted: true}})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			err = s.Update(t.Context())
			if (err != nil) != (c.missing != "") || err != nil && !strings.HasSuffix(err.Error(), fmt.Sprintf("has no component %q", c.missing)) {
				t.Errorf("%q of %q: %v", c.asked, c.listed, err)
			}
		}
	}
}

// TestListName has names as apt writes them.
func TestListName(t *testing.T) {
	for uri, want := range map[string]string{
		"http://deb.example.org/debian/dists/stable/InRelease":                "deb.example.org_debian_dists_stable_InRelease",
		"https://user:pass@deb.example.org:8443/a_b~c/dists/stable/InRelease": "deb.example.org:8443_a%5fb%7ec_dists_stable_InRelease",
		"copy:/srv/debian/dists/stable/Release":                               "_srv_debian_dists_stable_Release",
		"file:///srv/debian/dists/stable/Release":                             "_srv_debian_dists_stable_Release",
	} {
		if got := listName(uri); got != want {
			t.Errorf("%s: %s, want %s", uri, got, want)
		}
	}
}
