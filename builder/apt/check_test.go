// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

func TestCheck(t *testing.T) {
	key := func(text string) string {
		return "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n" + text + "\n-----END PGP PUBLIC KEY BLOCK-----\n"
	}
	repo := func(id, key string) spec.Repository {
		return spec.Repository{ID: id, URL: "https://apt.example.org/x", Distributions: []string{"d"}, Components: []string{"main"}, Key: key}
	}
	for _, c := range []struct {
		name string
		base *spec.Debian
		own  []spec.Repository
		want string
	}{
		{"good", &spec.Debian{Suite: "trixie", Mirror: "http://deb.example.org/debian", Snapshot: "20260101T000000Z"}, []spec.Repository{repo("a", key("x"))}, ""},
		{"a second line in the mirror", &spec.Debian{Suite: "trixie", Mirror: "http://deb.example.org/debian trixie main\ndeb [trusted=yes] http://evil.example.org/ ./"}, nil, "not the URL"},
		{"an option in the security archive", &spec.Debian{Suite: "trixie", Security: "http://x/ [trusted=yes]"}, nil, "not the URL"},
		{"a second line in the snapshot", &spec.Debian{Suite: "trixie", Mirror: "http://deb.example.org", Snapshot: "2026\ndeb x"}, nil, "cannot be in a list"},
		{"a second line in the suite", &spec.Debian{Suite: "trixie\ndeb"}, nil, "cannot be in a list"},
		{"one archive in two entries", nil, []spec.Repository{repo("a", key("x")), repo("b", key("x"))}, ""},
		{"one archive with two keys", nil, []spec.Repository{repo("a", key("x")), repo("b", key("y"))}, "has two keys"},
	} {
		if err := Check(c.base, c.own); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	// One name of a key, or apt refuses the two lines together.
	got, err := Repositories([]spec.Repository{repo("a", key("x")), repo("b", key("x"))}, t.TempDir())
	if err != nil || got[0].Keyring != got[1].Keyring {
		t.Errorf("the same key is two: %+v, %v", got, err)
	}
}

// The end of what a script said is in the reason, and not the rest.
func TestReasonsOfAScript(t *testing.T) {
	got := strings.Join(Reasons("Setting up lib (1) ...\nfine\nSetting up app (2) ...\none\ntwo\nthree\nno database\nstill no database\n"+
		"dpkg: error processing package app (--configure):\n installed app package post-installation script subprocess returned error exit status 7\nErrors were encountered while processing:\n app\n"), "; ")
	if !strings.Contains(got, `it said "two; three; no database; still no database"`) || !strings.Contains(got, "exit status 7") || strings.Contains(got, "fine") {
		t.Errorf("got %s", got)
	}
}
