// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// The same question to the same indexes is answered from what was kept; another
// question, or other indexes, are asked.
func TestDescribeAsksOnce(t *testing.T) {
	a := newArchive(t)
	a.add("lib", "1.0")
	a.add("app", "1.0")
	s := a.updated()
	debs, err := s.Resolve(context.Background(), Request{Install: []string{"lib", "app"}})
	if err != nil {
		t.Fatal(err)
	}
	ask := func(debs []Deb) string {
		t.Helper()
		text, err := s.describe(context.Background(), debs)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := ask(debs)
	if !strings.Contains(first, "Package: lib") || !strings.Contains(first, "Package: app") {
		t.Fatalf("two packages are described so: %q", first)
	}
	kept, err := os.ReadFile(s.path("described"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("described"), append(kept, "kept"...), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := ask(debs); got != first+"kept" {
		t.Errorf("the same question was asked again, or answered otherwise: %q", got)
	}
	if got := ask(debs[:1]); strings.HasSuffix(got, "kept") || got == first {
		t.Errorf("another question got the kept answer: %q", got)
	}
	ask(debs)
	a.add("new", "1.0")
	if err := s.Update(context.Background()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(s.path("status"), []byte("stale"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := ask(debs); got != first {
		t.Errorf("new indexes: got %q, want %q", got, first)
	}
	if status, err := os.ReadFile(s.path("status")); err != nil || len(status) != 0 {
		t.Errorf("new indexes were not asked: status is %q (%v)", status, err)
	}
}

func TestSource(t *testing.T) {
	for text, want := range map[string][2]string{
		"Package: jq\nVersion: 1.6-2\n":                                                        {"jq", ""},
		"Package: libc6\nVersion: 2.36-9\nSource: glibc\n":                                     {"glibc", ""},
		"Package: jq\nVersion: 1.6-2+b1\nSource: jq (1.6-2)\n":                                 {"jq", "1.6-2"},
		"Package: a\nVersion: 1\nSource: b (1)\n":                                              {"b", ""},
		"Package: linux-image-amd64\nVersion: 6.1.1-1\nSource: linux-signed-amd64 (6.1.1+1)\n": {"linux-signed-amd64", "6.1.1+1"},
	} {
		if name, version := source(Stanzas(text)[0]); name != want[0] || version != want[1] {
			t.Errorf("%q: %s %s", text, name, version)
		}
	}
}

// The source of each resolved package is what the index says, and a package that no index has is left alone.
func TestSetSources(t *testing.T) {
	a := newArchive(t)
	a.add("lib", "1.0", "Source: libsrc (0.9)")
	a.add("plain", "2:1.0")
	s := a.updated()
	debs, err := s.Resolve(t.Context(), Request{Install: []string{"lib", "plain"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetSources(t.Context(), debs); err != nil {
		t.Fatal(err)
	}
	if debs[0].Source != "libsrc" || debs[0].SourceVersion != "0.9" || debs[1].Source != "plain" || debs[1].SourceVersion != "" {
		t.Errorf("%+v", debs)
	}
	other := debs[0]
	other.SHA256, other.Source = "00", ""
	if err := s.SetSources(t.Context(), []Deb{other, debs[1]}); err != nil || other.Source != "" {
		t.Errorf("%+v, %v", other, err)
	}
}

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
