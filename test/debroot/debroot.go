// SPDX-License-Identifier: Apache-2.0

// Package debroot makes roots of Debian releases in which tests run Debian's own
// programs: its dpkg, its systemd-analyze. Nothing runs in them by itself.
//
// Only tests import it; they are root's.
package debroot

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/test/require"
)

// Releases are those that the agent's package is for.
var Releases = []string{"bookworm", "trixie"}

// Root is such a root.
type Root struct {
	Dir string
	t   testing.TB
}

// New makes a root of a release with systemd, from one that was made this week: they are
// kept below the user's cache directory.
func New(t testing.TB, release string) *Root {
	t.Helper()
	require.Root(t)
	require.Tool(t, "mmdebstrap", "unshare", "chroot", "tar")
	r := &Root{Dir: t.TempDir(), t: t}
	if out, err := exec.CommandContext(t.Context(), "tar", "--extract", "--numeric-owner", "--xattrs", "--xattrs-include=*", "--file", kept(t, release), "--directory", r.Dir).CombinedOutput(); err != nil {
		t.Fatalf("tar: %v: %s", err, out)
	}
	return r
}

// kept returns the file of this week's root of a release, which it makes where it is missing.
func kept(t testing.TB, release string) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "caisson", "debroot")
	year, week := time.Now().ISOWeek()
	name := filepath.Join(dir, fmt.Sprintf("%s-%d-%02d.tar", release, year, week))
	if _, err := os.Stat(name); err == nil {
		return name
	}
	require.Net(t)
	older, err := filepath.Glob(filepath.Join(dir, release+"-*.tar"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	made := filepath.Join(t.TempDir(), "root.tar")
	if out, err := exec.CommandContext(t.Context(), "mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd", release, made).CombinedOutput(); err != nil {
		require.Missing(t, "net", "mmdebstrap "+release+": "+string(out))
	}
	if err := durable.Write(name, 0o600, func(w io.Writer) error {
		f, err := os.Open(made)
		if err != nil {
			return err
		}
		defer f.Close() // only read
		_, err = io.Copy(w, f)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, name := range older {
		if err := os.Remove(name); err != nil && !os.IsNotExist(err) { // another test removes it, too
			t.Fatal(err)
		}
	}
	return name
}

// Run runs a script of sh(1) in the root, with a /proc, and returns what it printed.
func (r *Root) Run(script string) (said string, ok bool) {
	r.t.Helper()
	cmd := exec.CommandContext(r.t.Context(), "unshare", "--mount", "--pid", "--fork", "sh", "-c", `mount -t proc proc "$0/proc" && exec chroot "$0" /bin/sh -c "$1"`, r.Dir, script)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=/root", "DEBIAN_FRONTEND=noninteractive"}
	out, err := cmd.CombinedOutput()
	return string(out), err == nil
}

// Must is Run of a script that succeeds.
func (r *Root) Must(script string) string {
	r.t.Helper()
	said, ok := r.Run(script)
	if !ok {
		r.t.Fatalf("%s\n%s", script, said)
	}
	return said
}

// Put copies a file of this machine into the root.
func (r *Root) Put(from, to string) {
	r.t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.Dir, to), data, 0o644); err != nil {
		r.t.Fatal(err)
	}
}
