// SPDX-License-Identifier: Apache-2.0

// Package debroot makes roots of Debian releases in which tests run Debian's own
// programs: its dpkg, its systemd-analyze. Nothing runs in them by itself.
//
// Only tests import it; they are root's.
package debroot

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/internal/require"
)

// Releases are those that the agent's package is for.
var Releases = []string{"bookworm", "trixie"}

// Root is such a root.
type Root struct {
	Dir string
	t   testing.TB
}

// New makes a root of a release with systemd.
func New(t testing.TB, release string) *Root {
	t.Helper()
	require.Root(t)
	require.Tool(t, "mmdebstrap", "unshare", "chroot")
	r := &Root{Dir: filepath.Join(t.TempDir(), release), t: t}
	if out, err := exec.CommandContext(t.Context(), "mmdebstrap", "--quiet", "--variant=minbase", "--include=systemd", release, r.Dir).CombinedOutput(); err != nil {
		require.Missing(t, "net", "mmdebstrap "+release+": "+string(out))
	}
	return r
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
