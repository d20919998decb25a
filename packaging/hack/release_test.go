// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// checkout is a commit of packaging/hack/release and of a Makefile which prints what it is given instead of
// building, and fails.
func checkout(t *testing.T) string {
	t.Helper()
	require.Tool(t, "make", "git")
	dir := t.TempDir()
	text, err := os.ReadFile("release")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "packaging/hack"), 0o755), os.WriteFile(filepath.Join(dir, "packaging/hack/release"), text, 0o755),
		os.WriteFile(filepath.Join(dir, "Makefile"), []byte("LDFLAGS := ours\nbuild:\n\t@env | grep ^GO; echo LDFLAGS=$(LDFLAGS); ls -A; false\n"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if said, code := script(t, nil, "sh", "-ec", `cd "$0"; git init -q .; git add .; git -c user.name=n -c user.email=n@localhost commit -qm one; git tag v1.2.3`, dir); code != 0 {
		t.Fatal(said)
	}
	return dir
}

func TestReleaseRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, before, version, out, want string
		code                             int
	}{
		{"a commit", "", "fa08c33", "", "fa08c33 is not a version, such as", 2},
		{"a version of describe", "", "v1.2.3-dirty", "", "is not a version", 2},
		{"a full folder", "", "v1.2.3", full, "is not empty", 1},
		{"a change", "echo >>Makefile", "v1.2.3", "", " M Makefile\n", 1},
		{"a file that git does not know", "mkdir cmd; echo package main >cmd/zz_local.go", "v1.2.3", "", "cmd/zz_local.go\n", 1},
		{"one that git is told not to show", "git config status.showUntrackedFiles no; echo >x.txt", "v1.2.3", "", "?? x.txt\n", 1},
		{"one that git is told to ignore", "echo zz_local.go >>.git/info/exclude; echo package main >zz_local.go", "v1.2.3", "", "zz_local.go\n", 1},
		{"no commit", "rm -r .git", "v1.2.3", "", "not a git repository", 128},
		{"a version that is not a tag", "", "v1.2.4", "", "v1.2.4 is not a tag of this commit, which has v1.2.3;", 1},
		{"a tag of another commit", "git -c user.name=n -c user.email=n@localhost commit -q --allow-empty -m two", "v1.2.3", "", "which has none;", 1},
		{"a part of a tag", "git tag -d v1.2.3; git tag v1.2.30", "v1.2.3", "", "v1.2.3 is not a tag", 1},
	} {
		dir := checkout(t)
		if said, code := script(t, nil, "env", "-C", dir, "sh", "-ec", c.before); code != 0 {
			t.Fatal(said)
		}
		if c.out == "" {
			c.out = filepath.Join(t.TempDir(), "out")
		}
		if said, code := script(t, []string{"DIRTY=", "UNTAGGED=", "GIT_CEILING_DIRECTORIES=" + filepath.Dir(dir)}, dir+"/packaging/hack/release", c.version, "2026-11-22T22:00:00Z", c.out); code != c.code || !strings.Contains(said, c.want) {
			t.Errorf("%s: code %d: %s", c.what, code, said)
		}
	}
}

// What is named is done, and nothing else of the environment and of make's command line
// comes to the compiler.
func TestReleaseEnvironment(t *testing.T) {
	dir := checkout(t)
	if err := os.WriteFile(filepath.Join(dir, "x.go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	said, code := script(t, []string{"DIRTY=1", "UNTAGGED=1", "GOOS=plan9", "GOARCH=386", "GOAMD64=v3", "GOARM64=v9.0", "GOFLAGS=-race", "GOEXPERIMENT=nojsonv2", "GOFIPS140=latest", "GOWORK=/none",
		"GOPROXY=https://proxy.example", "MAKEFLAGS= -- LDFLAGS=theirs"}, dir+"/packaging/hack/release", "v1.2.4", "2026-11-22T22:00:00Z", filepath.Join(t.TempDir(), "out"))
	said = "\n" + said
	if code == 0 || !strings.Contains(said, "\nGOARCH=amd64\n") {
		t.Fatalf("code %d: %s", code, said)
	}
	for _, want := range []string{"GOOS=linux", "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOFIPS140=off", "GOWORK=off", "GOENV=off", "GOPROXY=https://proxy.example", "LDFLAGS=ours"} {
		if !strings.Contains(said, "\n"+want+"\n") {
			t.Errorf("no %s in\n%s", want, said)
		}
	}
	if strings.Contains(said, "GOEXPERIMENT=") {
		t.Error(said)
	}
}

// What git ignores, an editor's copy of a page that is embedded, is not in a release.
func TestReleaseOfTheCommit(t *testing.T) {
	dir := checkout(t)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, ".git/info/exclude"), []byte("*~\n"), 0o644), os.WriteFile(filepath.Join(dir, "page.html~"), nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, dirty := range []string{"", "1"} {
		said, code := script(t, []string{"DIRTY=" + dirty, "UNTAGGED="}, dir+"/packaging/hack/release", "v1.2.3", "2026-11-22T22:00:00Z", filepath.Join(t.TempDir(), "out"))
		if code == 0 || !strings.Contains(said, "\nMakefile\n") || strings.Contains(said, "page.html~") != (dirty != "") {
			t.Errorf("DIRTY=%s: code %d: %s", dirty, code, said)
		}
	}
}

// The same commit makes the same bytes, signature included, from another folder and with
// nothing compiled before.
func TestLongRelease(t *testing.T) {
	require.Long(t)
	require.Tool(t, "make", "git", "gzip", "tar", "dpkg-deb", "openssl")
	dir := t.TempDir()
	if said, code := script(t, nil, "go", "run", "../../cmd/caisson", "keys", "generate", filepath.Join(dir, "release")); code != 0 {
		t.Fatal(said)
	}
	var outs []string
	for at, env := range map[string][]string{"one": nil, "two/deeper": {"GOCACHE=" + t.TempDir(), "GOAMD64=v3", "GOARM64=v8.2"}} {
		tree, out := filepath.Join(dir, at), filepath.Join(dir, strings.ReplaceAll(at, "/", "-")+"-out")
		if said, code := script(t, nil, "git", "clone", "-q", "../..", tree); code != 0 {
			t.Fatal(said)
		}
		if said, code := script(t, nil, "git", "-C", tree, "tag", "v1.2.3"); code != 0 {
			t.Fatal(said)
		}
		if said, code := script(t, env, "make", "-s", "-C", tree, "release", "VERSION=v1.2.3", "OUT="+out, "KEY="+filepath.Join(dir, "release.key")); code != 0 {
			t.Fatal(said)
		}
		outs = append(outs, filepath.Join(out, "release"))
	}
	if said, code := script(t, nil, "diff", "-r", outs[0], outs[1]); code != 0 {
		t.Error(said)
	}
	check := `cd "$1" && base64 -d SHA256SUMS.sig >../sig && openssl dgst -sha256 -verify "$2" -signature ../sig SHA256SUMS && sha256sum --strict -c SHA256SUMS`
	said, code := script(t, nil, "bash", "-c", check, "bash", outs[0], filepath.Join(dir, "release.pub"))
	if code != 0 || strings.Count(said, ": OK\n") != 11 {
		t.Errorf("code %d: %s", code, said)
	}
	for _, deb := range []string{"caisson_1.2.3_amd64.deb", "caisson_1.2.3_arm64.deb"} {
		said, code := script(t, nil, "dpkg-deb", "--contents", filepath.Join(outs[0], deb))
		for _, want := range []string{"./usr/bin/caisson\n", "./usr/share/man/man1/caisson-publish.1.gz\n", "./usr/lib/systemd/system/caisson-fleet.service\n", "./usr/share/zsh/vendor-completions/_caisson\n"} {
			if code != 0 || !strings.Contains(said, want) {
				t.Errorf("%s has no %s:\n%s", deb, want, said)
			}
		}
	}
}
