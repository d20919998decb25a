// SPDX-License-Identifier: Apache-2.0

package git

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

func TestHead(t *testing.T) {
	require.Tool(t, "git")
	top := t.TempDir()
	dir := filepath.Join(top, "site")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(top, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", top, "-c", "user.name=eve", "-c", "user.email=eve@example.org"}, args...)...)
		cmd.Env = environment()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	is := func(want, when string) {
		t.Helper()
		if got, err := Head(t.Context(), dir); got != want || err != nil {
			t.Errorf("%s: %q, %v, not %q", when, got, err, want)
		}
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	is("", "no repository")
	git("init", "-q")
	if got, err := Head(t.Context(), dir); got != "" || err == nil {
		t.Errorf("no commit yet: %q, %v", got, err)
	}
	write("site/site.yaml", "a")
	write("other", "a")
	git("add", "-A")
	git("commit", "-qm", "one")
	id := git("rev-parse", "HEAD")
	is(id, "as committed")
	write("other", "b")
	write("site/untracked", "b")
	is(id, "another file than the site's differs")
	write("site/site.yaml", "b")
	is(id+"+", "the site differs")
	// The commit is written elsewhere as it was, and the working tree stays as it is.
	copied, err := Export(t.Context(), dir, id, t.TempDir())
	if text, bad := os.ReadFile(filepath.Join(copied, "site.yaml")); err != nil || bad != nil || string(text) != "a" {
		t.Errorf("checked out at %s: %q, %v, %v", copied, text, err, bad)
	}
	is(id+"+", "after it was written elsewhere")
	if _, err := Export(t.Context(), dir, strings.Repeat("1", 40), t.TempDir()); err == nil {
		t.Error("a commit that is not there is written")
	}
	// The monitor that a repository names is a program, and is not run.
	mark := filepath.Join(top, "ran")
	git("config", "core.fsmonitor", "touch "+mark)
	is(id+"+", "with a monitor")
	if _, err := os.Lstat(mark); err == nil {
		t.Error("the repository's monitor ran")
	}
}
