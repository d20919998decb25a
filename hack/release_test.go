// SPDX-License-Identifier: Apache-2.0

package hack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/internal/require"
)

func TestReleaseRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		version, out, want string
		code               int
	}{
		"a commit":          {"fa08c33", t.TempDir(), "make release VERSION=v0.9.0", 2},
		"one that is dirty": {"v1.2.3-dirty", t.TempDir(), "is not a version", 2},
		"a full folder":     {"v1.2.3", full, "is not empty", 1},
	} {
		if said, code := script(t, []string{"DIRTY=1"}, "./release", c.version, "2026-11-22T22:00:00Z", c.out); code != c.code || !strings.Contains(said, c.want) {
			t.Errorf("%s: code %d: %s", what, code, said)
		}
	}
}

// The same commit makes the same bytes, signature included, from another folder and with
// nothing compiled before.
func TestLongRelease(t *testing.T) {
	require.Long(t)
	require.Tool(t, "make", "git", "gzip", "tar", "dpkg-deb", "openssl")
	dir := t.TempDir()
	if said, code := script(t, nil, "go", "run", "../cmd/caisson", "keys", "generate", filepath.Join(dir, "release")); code != 0 {
		t.Fatal(said)
	}
	var outs []string
	for at, env := range map[string][]string{"one": nil, "two/deeper": {"GOCACHE=" + t.TempDir()}} {
		tree, out := filepath.Join(dir, at), filepath.Join(dir, strings.ReplaceAll(at, "/", "-")+"-out")
		if said, code := script(t, nil, "git", "clone", "-q", "..", tree); code != 0 {
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
