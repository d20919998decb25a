// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// archive is a directory that a web server offers, signed by a key of its own.
type archive struct {
	t    *testing.T
	dir  string
	keys string
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	require.Tool(t, "apt-get", "apt-cache", "apt-config", "dpkg-deb", "gpg", "gpgconf")
	keys, err := os.MkdirTemp("", "keys-") // the name of its agent's socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(keys) })
	a := &archive{t: t, dir: t.TempDir(), keys: keys}
	a.gpg("", "--passphrase", "", "--quick-gen-key", "test@example.org", "rsa2048", "sign")
	t.Cleanup(func() { tool(t, "gpgconf", "--homedir", keys, "--kill", "all") })
	a.gpg("", "--output", a.keyring(), "--export")
	return a
}

func (a *archive) keyring() string { return filepath.Join(a.keys, "archive.gpg") }

func (a *archive) gpg(stdin string, args ...string) {
	a.t.Helper()
	cmd := exec.Command("gpg", append([]string{"--homedir", a.keys, "--batch", "--yes", "--quiet"}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	if said, err := cmd.CombinedOutput(); err != nil {
		a.t.Fatalf("gpg: %v\n%s", err, said)
	}
}

// list writes the list of packages, all of one version; those of more have fields of their own.
func (a *archive) list(version string, more ...deb) {
	a.t.Helper()
	suite := filepath.Join(a.dir, "dists/trixie")
	if err := os.MkdirAll(filepath.Join(suite, "main/binary-amd64"), 0o755); err != nil {
		a.t.Fatal(err)
	}
	var list strings.Builder
	own := func(name string) bool {
		return slices.ContainsFunc(more, func(d deb) bool { return d.name == name })
	}
	for _, name := range slices.DeleteFunc(append([]string{"apt", "tree", testRecipe().Kernel}, base.Include...), own) {
		more = append(more, deb{name: name})
	}
	for _, d := range more {
		fmt.Fprintf(&list, "Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: Test <test@example.org>\nDescription: test\n%sFilename: pool/%s_%s_all.deb\nSize: 1\nSHA256: %x\n\n",
			d.name, version, d.fields, d.name, version, sha256.Sum256([]byte(d.name+version)))
	}
	if err := os.WriteFile(filepath.Join(suite, packagesFile), []byte(list.String()), 0o644); err != nil {
		a.t.Fatal(err)
	}
}

const packagesFile = "main/binary-amd64/Packages"

// sign makes the list the one that the archive offers from that hour on.
func (a *archive) sign(hour int) {
	a.t.Helper()
	suite := filepath.Join(a.dir, "dists/trixie")
	list, err := os.ReadFile(filepath.Join(suite, packagesFile))
	if err != nil {
		a.t.Fatal(err)
	}
	a.gpg(fmt.Sprintf("Suite: trixie\nCodename: trixie\nDate: Thu, 19 Nov 2026 %02d:00:00 UTC\nArchitectures: all amd64\nComponents: main\nSHA256:\n %x %d %s\n",
		hour, sha256.Sum256(list), len(list), packagesFile), "--output", filepath.Join(suite, "InRelease"), "--clearsign")
	date := time.Date(2026, 11, 19, hour, 0, 0, 0, time.UTC) // a server tells what is newer by the second
	if err := os.Chtimes(filepath.Join(suite, "InRelease"), date, date); err != nil {
		a.t.Fatal(err)
	}
}

// TestSolve asks an archive that is as it was, and one that has changed. apt resolves
// before the archive has answered; what it finds must count in the first case alone.
func TestSolve(t *testing.T) {
	a, cache := newArchive(t), t.TempDir()
	server := httptest.NewServer(http.FileServer(http.Dir(a.dir)))
	defer server.Close()
	for _, sub := range []string{"resolved", "apt"} {
		if err := os.Mkdir(filepath.Join(cache, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	solve := func() (string, error) {
		t.Helper()
		b := &build{options: Options{CacheDir: cache}, recipe: testRecipe()}
		var err error
		if b.baseApt, err = apt.Open(t.Context(), filepath.Join(cache, "apt/state"), "amd64",
			[]apt.Archive{{ID: "debian", URI: server.URL, Suites: []string{"trixie"}, Components: []string{"main"}, Keyring: a.keyring()}}); err != nil {
			t.Fatal(err)
		}
		b.apt = b.baseApt
		l, err := b.solve(t.Context())
		if err != nil {
			return "", err
		}
		if len(l.Packages) != 1 {
			t.Fatalf("%d packages", len(l.Packages))
		}
		return l.Packages[0].Version, nil
	}
	want := func(version, when string) {
		t.Helper()
		if got, err := solve(); err != nil || got != version {
			t.Errorf("%s: version %q, %v", when, got, err)
		}
	}
	a.list("1")
	a.sign(1)
	want("1", "a new cache")
	want("1", "again")

	// With the same InRelease the other files need no look, nor what apt made of them.
	a.list("2")
	forget := func() {
		t.Helper()
		files, _ := filepath.Glob(filepath.Join(cache, "resolved/*"))
		for _, name := range files {
			if err := os.Remove(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	forget()
	read, hour := filepath.Join(cache, "apt/state/cache/srcpkgcache.bin"), time.Now().Add(-time.Hour).Truncate(time.Second)
	for name, date := range map[string]time.Time{"cache/srcpkgcache.bin": hour, "etc/sources.list": hour.Add(-time.Hour), "etc/sources.list.d": hour.Add(-time.Hour)} {
		if err := os.Chtimes(filepath.Join(cache, "apt/state", name), date, date); err != nil {
			t.Fatal(err)
		}
	}
	want("1", "nothing changed")
	if info, err := os.Stat(read); err != nil || !info.ModTime().Equal(hour) {
		t.Errorf("apt read all indexes again: %v, %v", info.ModTime(), err)
	}

	a.sign(2)
	want("2", "another index")

	// What another key signed, and what expired, is apt's to refuse.
	other := newArchive(t)
	other.dir = a.dir
	other.list("3")
	other.sign(3)
	if got, err := solve(); err == nil {
		t.Errorf("signed by another key: version %s", got)
	}
}

// TestIndexesOfTwoArchitectures: a site may have layers for both, of one archive. What was fetched for one has
// no package for the other, and the archive says of both that nothing has changed.
func TestIndexesOfTwoArchitectures(t *testing.T) {
	require.Tool(t, "apt-get", "apt-cache", "apt-config", "dpkg-deb")
	cache := t.TempDir()
	for _, arch := range []string{"amd64", "arm64", "amd64"} {
		b := &build{options: Options{CacheDir: cache}, recipe: spec.Recipe{Arch: arch}}
		if _, err := b.openApt(t.Context(), []apt.Archive{{ID: "debian", URI: "http://archive.example", Suites: []string{"trixie"}}}); err != nil {
			t.Fatal(err)
		}
	}
	if states, err := os.ReadDir(filepath.Join(cache, "apt")); len(states) != 2 || err != nil {
		t.Errorf("states %v, %v", states, err)
	}
}
