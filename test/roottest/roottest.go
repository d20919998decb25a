// SPDX-License-Identifier: Apache-2.0

// Package roottest makes small layers for tests of the builder's steps: busybox
// and what a test puts beside it. They need root, and no archive.
//
// A test that runs programs in one calls [root.Enter] first in TestMain. Only
// tests import the package.
package roottest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/test/require"
)

// New returns a root with an empty upper tree over one that has a shell, the
// programs of busybox, the accounts root, daemon (1) and adm (group 4), and files:
// those whose text begins with "#!" can be run.
func New(t *testing.T, files map[string]string) *root.Root {
	t.Helper()
	require.Root(t)
	require.Tool(t, "busybox")
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		require.Missing(t, "tools", err.Error())
	}
	lower := t.TempDir()
	if err := os.Chmod(lower, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "usr/bin"} {
		if err := os.MkdirAll(filepath.Join(lower, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("usr/bin", filepath.Join(lower, "bin")); err != nil {
		t.Fatal(err)
	}
	Put(t, lower, map[string]string{
		"usr/bin/sh": string(busybox),
		"etc/passwd": "root:x:0:0::/:/bin/sh\ndaemon:x:1:1::/:/bin/sh\n",
		"etc/group":  "root:x:0:\ndaemon:x:1:\nadm:x:4:\n",
	})
	Put(t, lower, files)
	return &root.Root{Lowers: []string{lower}, Upper: t.TempDir(), Work: t.TempDir()}
}

// Put writes files into a tree, with mode 0644, or 0755 for programs.
func Put(t *testing.T, tree string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		at := filepath.Join(tree, name)
		perm := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") || strings.HasPrefix(text, "\x7fELF") {
			perm = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), perm); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at, perm); err != nil { // whatever the umask
			t.Fatal(err)
		}
	}
}
