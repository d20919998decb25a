// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/packaging/systemd"
	"github.com/caisson-os/caisson/spec/rules"
)

// TestEachRuntimeHasAFileSystem: each program of a container runtime, also one that Debian lacks, brings
// a file system for its directory, on the state disk or in memory, where no package has made that.
func TestEachRuntimeHasAFileSystem(t *testing.T) {
	for program, dir := range map[string]string{
		"usr/bin/containerd": "var/lib/containerd",
		"usr/bin/dockerd":    "var/lib/docker",
		"usr/sbin/dockerd":   "var/lib/docker",
		"usr/bin/kubelet":    "var/lib/kubelet",
		"usr/bin/podman":     "var/lib/containers",
		"usr/bin/crio":       "var/lib/containers",
		"usr/bin/buildah":    "var/lib/containers",
	} {
		for _, disk := range []bool{false, true} {
			t.Run(filepath.Base(program), func(t *testing.T) {
				at := t.TempDir()
				n := newNode(t, at, disk)
				if err := os.RemoveAll(filepath.Join(n.Root, "usr/bin/containerd")); err != nil {
					t.Fatal(err)
				}
				if err := os.RemoveAll(filepath.Join(n.Root, "var/lib/docker")); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(n.Root, program), nil, 0o755); err != nil {
					t.Fatal(err)
				}
				do(t, n)
				var fs, kept unix.Statfs_t
				if err := unix.Statfs(filepath.Join(n.Root, dir), &fs); err != nil {
					t.Fatal(err)
				}
				if err := unix.Statfs(at, &kept); err != nil {
					t.Fatal(err)
				}
				if memory := fs.Type == unix.TMPFS_MAGIC; disk && fs.Fsid != kept.Fsid || !disk && !memory {
					t.Errorf("%s, with a disk %v: of type %x", dir, disk, fs.Type)
				}
				for _, r := range runtimes { // nothing for the others
					if "/"+dir != r.path && n.exists(r.path) {
						t.Errorf("%s is there for %s", r.path, program)
					}
				}
			})
		}
	}
}

// The units of runtimes that the agent's own unit comes before are those that need no drop-in for it.
func TestRuntimesWaitForTheAgent(t *testing.T) {
	text, err := systemd.Units.ReadFile(paths.AgentService)
	if err != nil || !strings.Contains(string(text), "\nBefore="+strings.Join(rules.WaitingUnits, " ")+"\n") {
		t.Errorf("%v\n%s", err, text)
	}
}
