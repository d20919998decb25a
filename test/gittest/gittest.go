// SPDX-License-Identifier: Apache-2.0

// Package gittest serves repositories of git to tests: git's own http-backend behind a
// server on 127.0.0.1. Only tests import it.
package gittest

import (
	"net/http/cgi"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/require"
)

// Repository is a repository with a branch main, and where it is served.
type Repository struct {
	URL string
	Dir string // where Git runs: a checkout of it

	Date   time.Time // of what Git commits
	Signer string    // file of the key of [Key] that signs it; none: nobody does

	t testing.TB
}

// New serves a repository that has no commit yet.
func New(t testing.TB) *Repository {
	t.Helper()
	require.Tool(t, "git")
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		t.Fatal(err)
	}
	backend := filepath.Join(strings.TrimSpace(string(out)), "git-http-backend")
	if _, err := os.Stat(backend); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	r := &Repository{Dir: filepath.Join(root, "checkout"), Date: time.Date(2026, 11, 1, 10, 0, 0, 0, time.UTC), t: t}
	server := httptest.NewServer(&cgi.Handler{Path: backend, Root: "/", Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null"},
		InheritEnv: []string{"PATH", "HOME"}})
	t.Cleanup(server.Close)
	r.URL = server.URL + "/checkout/.git"
	if err := os.Mkdir(r.Dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.Git("init", "--quiet", "--initial-branch=main")
	r.Git("config", "gc.auto", "0") // what tidies up in the background outlives the test
	r.Git("config", "maintenance.auto", "false")
	return r
}

// Git runs git in the checkout and returns what it prints.
func (r *Repository) Git(args ...string) string {
	r.t.Helper()
	if r.Signer != "" {
		args = append([]string{"-c", "gpg.format=ssh", "-c", "commit.gpgSign=true", "-c", "user.signingKey=" + r.Signer}, args...)
	}
	date := r.Date.Format(time.RFC3339)
	cmd := exec.Command("git", args...)
	cmd.Dir = r.Dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=Ann", "GIT_AUTHOR_EMAIL=ann@example.org", "GIT_COMMITTER_NAME=Ann", "GIT_COMMITTER_EMAIL=ann@example.org",
		"GIT_AUTHOR_DATE="+date, "GIT_COMMITTER_DATE="+date, "GIT_ALLOW_PROTOCOL=file:http")
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// Write writes files of the checkout; one with the content "" is removed.
func (r *Repository) Write(files map[string]string) {
	r.t.Helper()
	for name, text := range files {
		name = filepath.Join(r.Dir, name)
		err := os.Remove(name)
		if text != "" {
			if err = os.MkdirAll(filepath.Dir(name), 0o755); err == nil {
				err = os.WriteFile(name, []byte(text), 0o644)
			}
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// Commit writes files, commits all that differs and returns the commit.
func (r *Repository) Commit(subject string, files map[string]string) string {
	r.t.Helper()
	r.Write(files)
	r.Git("add", "--all")
	r.Git("commit", "--quiet", "--allow-empty", "-m", subject)
	return r.Git("rev-parse", "HEAD")
}

// Key makes a key of ssh. It returns its file, and its line of a file of allowed signers.
func Key(t testing.TB, name string) (file, line string) {
	t.Helper()
	require.Tool(t, "ssh-keygen")
	file = filepath.Join(t.TempDir(), name)
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pub, err := os.ReadFile(file + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	return file, name + "@example.org " + string(pub)
}
