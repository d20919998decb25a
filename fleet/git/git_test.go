// SPDX-License-Identifier: Apache-2.0

package git

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/test/gittest"
	"github.com/caisson-os/caisson/test/require"
)

// endless is what git could print.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestAnswersAreCapped as os/exec copies them.
func TestAnswersAreCapped(t *testing.T) {
	var c capped
	if n, err := io.Copy(&c, io.LimitReader(endless{}, maxAnswer+1<<20)); err == nil || len(c.text) > maxAnswer {
		t.Errorf("git printed %d bytes: %v", n, err)
	}
}

func open(t *testing.T, url string, l Limits) *Repository {
	t.Helper()
	r, err := Open(t.Context(), t.TempDir(), url, l)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

func follow(t *testing.T, r *Repository, ref string) string {
	t.Helper()
	id, err := r.Follow(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// files returns the tree that a commit makes, as "mode path: content".
func files(t *testing.T, r *Repository, id string, paths []string, single ...string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	err := r.Files(t.Context(), Commit{ID: id, Date: time.Unix(1000, 0)}, paths, func(p string) bool { return len(single) > 0 && single[0] == p }, dir)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		text := ""
		if d.Type()&os.ModeSymlink != 0 {
			text, err = os.Readlink(name)
		} else {
			var data []byte
			data, err = os.ReadFile(name)
			text = string(data)
			if info.ModTime().Unix() != 1000 {
				t.Errorf("%s is of %s", name, info.ModTime())
			}
		}
		rel, _ := filepath.Rel(dir, name) // of the walk
		fmt.Fprintf(&out, "%v %s: %s\n", info.Mode(), rel, text)
		return err
	})
	return out.String(), err
}

// TestLastCommitOfDirectories: commits that touch other directories move nothing.
func TestLastCommitOfDirectories(t *testing.T) {
	g := gittest.New(t)
	one := g.Commit("one", map[string]string{"a/x": "1", "ab/x": "1", "b/etcetera": "1"})
	two := g.Commit("two", map[string]string{"a/x": "2", "a/y z": "ü"})
	head := g.Commit("other", map[string]string{"ab/x": "2", "b/a/x": "2"}) // names that contain a's
	r := open(t, g.URL, Limits{})
	if got := follow(t, r, "heads/main"); got != head {
		t.Fatalf("main is %s, want %s", got, head)
	}
	last, err := r.Last(t.Context(), head, []string{"a"})
	if err != nil || last.ID != two || last.Subject != "two" || last.Author != "Ann" || last.Date.Format(time.DateOnly) != "2026-11-01" {
		t.Errorf("%+v, %v", last, err)
	}
	before, err := r.Before(t.Context(), two, []string{"a"})
	if err != nil || before.ID != one {
		t.Errorf("%+v, %v", before, err)
	}
	if before, err := r.Before(t.Context(), one, []string{"a"}); err == nil {
		t.Errorf("%+v is before the first", before)
	}
	if list, err := r.Between(t.Context(), one, head, []string{"a"}); err != nil || len(list) != 1 || list[0].ID != two {
		t.Errorf("%+v, %v", list, err)
	}
	if paths, err := r.Changed(t.Context(), one, head, []string{"a"}); err != nil || strings.Join(paths, "|") != "a/x|a/y z" {
		t.Errorf("%q, %v", paths, err)
	}
	if _, err := r.Last(t.Context(), head, []string{"none"}); err == nil {
		t.Error("a path that there never was has a commit")
	}
	got, err := files(t, r, head, []string{"a"})
	if want := "-rw-r--r-- a/x: 2\n-rw-r--r-- a/y z: ü\n"; err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
}

// TestRewrittenHistory is followed, and what was fetched before stays.
func TestRewrittenHistory(t *testing.T) {
	g := gittest.New(t)
	g.Commit("root", map[string]string{"a/x": "0"})
	old := g.Commit("old", map[string]string{"a/x": "1"})
	r := open(t, g.URL, Limits{})
	follow(t, r, "heads/main")
	g.Git("reset", "--quiet", "--hard", "HEAD~")
	fresh := g.Commit("fresh", map[string]string{"a/x": "2"})
	g.Git("reflog", "expire", "--expire=now", "--all")
	g.Git("gc", "--quiet", "--prune=now")
	if got := follow(t, r, "heads/main"); got != fresh {
		t.Fatalf("main is %s, want %s", got, fresh)
	}
	if err := r.Have(t.Context(), old); err != nil {
		t.Errorf("the commit of before: %v", err)
	}
	if got, err := files(t, r, old, []string{"a"}); err != nil || got != "-rw-r--r-- a/x: 1\n" {
		t.Errorf("%q, %v", got, err)
	}
	if list, err := r.Between(t.Context(), old, fresh, []string{"a"}); err != nil || len(list) != 1 || list[0].ID != fresh {
		t.Errorf("%+v, %v", list, err)
	}
}

// TestNoProgram: where git is not installed, the hint is to install it.
func TestNoProgram(t *testing.T) {
	g := gittest.New(t)
	g.Commit("one", map[string]string{"a/x": "1"})
	r := open(t, g.URL, Limits{})
	t.Setenv("PATH", t.TempDir())
	if _, err := r.Follow(t.Context(), "heads/main"); err == nil || cli.HintOf(err) != "install git" {
		t.Errorf("%v, hint %q", err, cli.HintOf(err))
	}
}

// TestGone tells a branch that vanished, and a commit that never was, from a server
// that does not answer.
func TestGone(t *testing.T) {
	g := gittest.New(t)
	id := g.Commit("one", map[string]string{"a/x": "1"})
	g.Git("branch", "next")
	r := open(t, g.URL, Limits{})
	if got := follow(t, r, "heads/next"); got != id {
		t.Fatal(got)
	}
	g.Git("branch", "-D", "next")
	if _, err := r.Follow(t.Context(), "heads/next"); !errors.Is(err, ErrGone) {
		t.Errorf("a branch that vanished: %v", err)
	}
	if err := r.Have(t.Context(), strings.Repeat("1", 40)); !errors.Is(err, ErrGone) {
		t.Errorf("a commit that never was: %v", err)
	}
	if _, err := r.Find(t.Context(), id[:8]); err != nil {
		t.Errorf("an abbreviated name: %v", err)
	}
	if _, err := r.Find(t.Context(), "main"); err == nil {
		t.Error("main is taken for a commit")
	}
	away := open(t, "http://127.0.0.1:9/none.git", Limits{})
	if _, err := away.Follow(t.Context(), "heads/main"); err == nil || errors.Is(err, ErrGone) {
		t.Errorf("a server that is not there: %v", err)
	}
	for _, url := range []string{"ext::sh -c true", "--upload-pack=touch", "https://a:b@c/d", "/srv/git"} {
		if _, err := Open(t.Context(), t.TempDir(), url, Limits{}); err == nil {
			t.Errorf("%s is opened", url)
		}
	}
}

// TestTagsLead to their commit, annotated or not.
func TestTagsLead(t *testing.T) {
	g := gittest.New(t)
	id := g.Commit("one", map[string]string{"a/x": "1"})
	g.Git("tag", "light")
	g.Git("tag", "-a", "-m", "heavy", "heavy")
	r := open(t, g.URL, Limits{})
	for _, tag := range []string{"light", "heavy"} {
		if got := follow(t, r, "tags/"+tag); got != id {
			t.Errorf("%s is %s", tag, got)
		}
	}
}

// TestFilesRefuses what would not be the same, or not safe, on a node.
func TestFilesRefuses(t *testing.T) {
	g := gittest.New(t)
	other := gittest.New(t)
	other.Commit("x", map[string]string{"x": "x"})
	g.Commit("base", map[string]string{"sub/x": "1", "lfs/x": "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 12\n", "up/x": "1", "abs/x": "1", "twist/x": "1", "good/d/x": "1", "one": "1"})
	g.Git("submodule", "add", "--quiet", other.URL, "sub/module")
	for name, target := range map[string]string{"up/l": "../one", "abs/l": "/etc/shadow", "twist/l": "good/../../one", "good/l": "d/x", "good/d/l": "../d/x", "good/m": "nowhere"} {
		if err := os.Symlink(target, filepath.Join(g.Dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Join(g.Dir, "good/d/x"), 0o755); err != nil {
		t.Fatal(err)
	}
	id := g.Commit("links", nil)
	r := open(t, g.URL, Limits{})
	follow(t, r, "heads/main")
	for name, want := range map[string]string{"sub": "submodule", "lfs": "LFS", "up": "out of up", "abs": "out of abs", "twist": "out of twist", "one": "is a file", "goood": "has no goood"} {
		if got, err := files(t, r, id, []string{name}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v\n%s", name, err, got)
		}
	}
	if _, err := files(t, r, id, []string{"good"}, "good"); err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("a directory for a file: %v", err)
	}
	got, err := files(t, r, id, []string{"good", "one"}, "one")
	if want := "Lrwxrwxrwx good/d/l: ../d/x\n-rwxr-xr-x good/d/x: 1\nLrwxrwxrwx good/l: d/x\nLrwxrwxrwx good/m: nowhere\n-rw-r--r-- one: 1\n"; err != nil || got != want {
		t.Errorf("%v\n got %s\nwant %s", err, got, want)
	}
}

// TestManyAndLargeFiles come whole, and within the limits only.
func TestManyAndLargeFiles(t *testing.T) {
	require.Slow(t)
	g := gittest.New(t)
	many := map[string]string{"large/one": strings.Repeat("0123456789abcdef", 1<<20) + "end"}
	for i := range 10_000 {
		many[fmt.Sprintf("many/%02d/%04d", i%100, i)] = fmt.Sprint(i)
	}
	id := g.Commit("many", many)
	r := open(t, g.URL, Limits{})
	follow(t, r, "heads/main")
	got, err := files(t, r, id, []string{"large", "many"})
	if n := strings.Count(got, "\n"); err != nil || n != 10_001 {
		t.Fatalf("%d files, %v", n, err)
	}
	if !strings.Contains(got, "-rw-r--r-- many/42/9942: 9942\n") || !strings.Contains(got, "large/one: "+many["large/one"]+"\n") {
		t.Error("files have not what was committed")
	}
	for what, l := range map[string]Limits{"files": {Time: Usual.Time, Memory: 1 << 30, Bytes: 1 << 30, Files: 9999, Size: 1 << 30}, "MB": {Time: Usual.Time, Memory: 1 << 30, Bytes: 1 << 30, Files: 1 << 20, Size: 16 << 20}} {
		r.Limits = l
		if _, err := files(t, r, id, []string{"large", "many"}); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("limit of %s: %v", what, err)
		}
	}
	small := open(t, g.URL, Limits{Time: Usual.Time, Memory: 1 << 30, Bytes: 10_000, Files: 1 << 20, Size: 1 << 30})
	if _, err := small.Follow(t.Context(), "heads/main"); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a repository that is too large: %v", err)
	}
	slow := open(t, g.URL, Limits{})
	slow.Limits.Time = time.Millisecond
	if _, err := slow.Follow(t.Context(), "heads/main"); err == nil || !strings.Contains(err.Error(), "took more than") {
		t.Errorf("a run without an end: %v", err)
	}
}

// TestSigned takes commits that a listed key has signed, and nothing else.
func TestSigned(t *testing.T) {
	g := gittest.New(t)
	ann, line := gittest.Key(t, "ann")
	eve, _ := gittest.Key(t, "eve")
	signers, empty := filepath.Join(t.TempDir(), "signers"), filepath.Join(t.TempDir(), "empty")
	if err := errors.Join(os.WriteFile(signers, []byte(line), 0o644), os.WriteFile(empty, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	unsigned := g.Commit("unsigned", map[string]string{"a/x": "1"})
	signed := func(by string) string {
		g.Git("-c", "gpg.format=ssh", "-c", "user.signingKey="+by, "commit", "--quiet", "--allow-empty", "-S", "-m", "signed")
		return g.Git("rev-parse", "HEAD")
	}
	good, bad := signed(ann), signed(eve)
	// A commit with the signature of another one.
	text := strings.Replace(g.Git("cat-file", "commit", good), "author Ann", "author Eve", 1)
	forgedFile := filepath.Join(t.TempDir(), "forged")
	if err := os.WriteFile(forgedFile, []byte(text+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	forged := g.Git("hash-object", "-t", "commit", "-w", forgedFile)
	g.Git("branch", "forged", forged)
	r := open(t, g.URL, Limits{})
	follow(t, r, "heads/main")
	follow(t, r, "heads/forged")
	if err := r.Signed(t.Context(), good, signers); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for what, c := range map[string][2]string{"unsigned": {unsigned, signers}, "by another": {bad, signers}, "forged": {forged, signers}, "nobody is allowed": {good, empty}, "no file": {good, filepath.Join(t.TempDir(), "none")}} {
		if err := r.Signed(t.Context(), c[0], c[1]); err == nil || !strings.Contains(err.Error(), "is not signed by") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestNothingOfTheUserActs: configuration, hooks and templates of the user who publishes
// are left alone.
func TestNothingOfTheUserActs(t *testing.T) {
	g := gittest.New(t)
	id := g.Commit("one", map[string]string{"a/x": "1"})
	home := t.TempDir()
	trap := filepath.Join(home, "sprung")
	script := filepath.Join(home, "trap")
	config := fmt.Sprintf("[core]\n hooksPath = %s\n fsmonitor = %s\n sshCommand = %s\n[credential]\n helper = %s\n[init]\n templateDir = %s\n[url \"http://127.0.0.1:9/\"]\n insteadOf = http://\n", home, script, script, script, home)
	hook := "#!/bin/sh\ntouch " + trap + "\n"
	err := errors.Join(os.WriteFile(filepath.Join(home, ".gitconfig"), []byte(config), 0o644), os.WriteFile(script, []byte(hook), 0o755),
		os.WriteFile(filepath.Join(home, "reference-transaction"), []byte(hook), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	for name, v := range map[string]string{"GIT_DIR": home, "GIT_EXTERNAL_DIFF": script, "GIT_SSH": script, "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath", "GIT_CONFIG_VALUE_0": home} {
		t.Setenv(name, v)
	}
	r := open(t, g.URL, Limits{})
	if got := follow(t, r, "heads/main"); got != id {
		t.Fatal(got)
	}
	if _, err := os.Stat(trap); err == nil {
		t.Error("what the user configured has run")
	}
}

// TestObjectsThatUnpack: what is small on its way and large in memory ends git, or is not
// held in memory, and nothing else of the machine pays for it.
func TestObjectsThatUnpack(t *testing.T) {
	require.Slow(t)
	g := gittest.New(t)
	const large = 40 << 20
	zeros := func(name string, end byte) {
		f, err := os.Create(filepath.Join(g.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt([]byte{end}, large)
		if err := errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	limits := Limits{Time: time.Minute, Memory: 64 << 20, Bytes: 1 << 30, Files: 10, Size: 1 << 30}
	zeros("one", 'a')
	want := g.Commit("one", nil)
	if got := follow(t, open(t, g.URL, limits), "heads/main"); got != want {
		t.Errorf("a large file: %s, want %s", got, want)
	}
	zeros("two", 'b')
	g.Commit("two", nil)
	g.Git("-c", "core.bigFileThreshold=1g", "-c", "pack.threads=1", "repack", "-adfq", "--window=2", "--depth=2")
	if _, err := open(t, g.URL, limits).Follow(t.Context(), "heads/main"); err == nil || !strings.Contains(err.Error(), "ut of memory") {
		t.Errorf("a delta that unpacks to more than git may take: %v", err)
	}
	if _, err := open(t, g.URL, Limits{}).Follow(t.Context(), "heads/main"); err != nil {
		t.Errorf("with the usual limits: %v", err)
	}
}
