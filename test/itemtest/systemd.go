// SPDX-License-Identifier: Apache-2.0

package itemtest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// underSystemd marks the process that systemd started.
const underSystemd = "CAISSON_TEST_SYSTEMD"

// boot makes the namespaces that it runs in a system of its own and becomes its
// init. $1 is the directory of the test, which is all that the system can write
// to: the machine's files, devices and kernel values are read-only for it, but for
// those of its own network namespace, and of units it sees the test's alone. Without that, the first transient service
// pulls in the machine's own boot, which empties /tmp.
const boot = `set -e
mount --make-rprivate /
mount -t tmpfs tmpfs /run
mkdir -p /run/test /run/units /run/systemd/system /run/lock
mount --bind "$1" /run/test
cp /run/test/*.target /run/test/*.service /run/units
mount --rbind / /mnt
mount -t tmpfs tmpfs /mnt/run
mount --rbind /run /mnt/run
mount -t tmpfs tmpfs /mnt/tmp
mount -t tmpfs tmpfs /mnt/var
mount -t tmpfs tmpfs /mnt/dev/shm
umount -l /mnt/sys/fs/cgroup 2>/dev/null || true
mount -t cgroup2 cgroup2 /mnt/sys/fs/cgroup
mount --bind /mnt/proc/sys /mnt/proc/sys
for at in /mnt /mnt/sys /mnt/dev /mnt/proc/sys; do mount -o remount,bind,ro "$at"; done
mount --bind /mnt/proc/sys/net /mnt/proc/sys/net
mount -o remount,bind,rw /mnt/proc/sys/net
cd /mnt
pivot_root . mnt
umount -l /mnt
export container=test SYSTEMD_UNIT_PATH=/run/units
exec "$2" --system --unit=test.target --log-target=null --show-status=no`

// Shared is the directory of the test in its system.
const Shared = "/run/test"

// InSystemd reports whether t runs as a service of a systemd of its own, in
// namespaces. When it does not, it runs the same test again in a child that
// does, and t, which should return then, has the child's result, in parallel
// with other such tests. Settings are added to the service, see systemd.exec(5).
func InSystemd(t *testing.T, settings ...string) bool {
	t.Helper()
	return InSystemdWith(t, nil, settings...)
}

// InSystemdWith is [InSystemd] for a test that needs files there: prepare puts them into
// the directory that is [Shared] in the system.
func InSystemdWith(t *testing.T, prepare func(dir string), settings ...string) bool {
	t.Helper()
	if os.Getenv(underSystemd) != "" {
		return true
	}
	require.Root(t)
	require.Tool(t, "unshare", "mount")
	init := "/lib/systemd/systemd"
	if _, err := os.Stat(init); err != nil {
		require.Missing(t, "tools", err.Error())
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if prepare != nil {
		prepare(dir)
	}
	out := filepath.Join(dir, "out")
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "test"), program, 0o755); err != nil {
		t.Fatal(err)
	}
	const stub = "[Unit]\nDefaultDependencies=no\n"
	for name, text := range map[string]string{
		"test.target":    "[Unit]\nDefaultDependencies=no\nWants=test.service\n",
		"sysinit.target": stub, "basic.target": stub, "shutdown.target": stub, // what services order themselves by
		"test.service": fmt.Sprintf("[Unit]\nDefaultDependencies=no\nSuccessAction=exit-force\nFailureAction=exit-force\n[Service]\nType=oneshot\n"+
			"ExecStart=/run/test/test -test.run=^%s$ -test.count=1 -test.v -test.timeout=20m\nEnvironment=%s=1 TMPDIR=/tmp PATH=%s\nWorkingDirectory=/run/test\n"+
			"StandardOutput=file:/run/test/out\nStandardError=file:/run/test/out\nOOMScoreAdjust=-900\n%s\n",
			regexp.QuoteMeta(t.Name()), underSystemd, os.Getenv("PATH"), strings.Join(settings, "\n")),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// All of it is below a cgroup that the test removes.
	cgroup := ""
	for _, root := range []string{"/sys/fs/cgroup/unified", "/sys/fs/cgroup"} {
		if _, err := os.Stat(root + "/cgroup.procs"); err == nil {
			if cgroup, err = os.MkdirTemp(root, "caisson-test-"); err != nil {
				require.Missing(t, "cgroup2", err.Error())
			}
			break
		}
	}
	if cgroup == "" {
		require.Missing(t, "cgroup2", "none is mounted")
	}
	t.Cleanup(func() { removeCgroup(t, cgroup) })
	child := exec.CommandContext(t.Context(), "/bin/sh", "-ec",
		`echo $$ >"$4"/cgroup.procs; exec unshare --pid --fork --kill-child --mount --mount-proc --cgroup --ipc --uts --net /bin/sh -c "$3" sh "$1" "$2"`,
		"sh", dir, init, boot, cgroup)
	said, err := child.CombinedOutput()
	text, _ := os.ReadFile(out) // without it nothing ran, and the message says so
	switch {
	case strings.Contains(string(text), "--- SKIP: "):
		t.Skipf("under systemd:\n%s", text)
	case !strings.Contains(string(text), "--- PASS: "+t.Name()+" "):
		t.Fatalf("under systemd: %v\n%s\n%s", err, said, text)
	}
	return false
}

// Confinement returns what a unit says of its process, as settings for [InSystemd].
func Confinement(t *testing.T, units fs.ReadFileFS, name string) []string {
	t.Helper()
	unit, err := units.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	_, service, _ := strings.Cut(string(unit), "[Service]")
	service, _, _ = strings.Cut(service, "[Install]")
	var settings []string
	for line := range strings.Lines(service) {
		key, _, ok := strings.Cut(line, "=")
		if !ok || strings.HasPrefix(key, "#") || slices.Contains([]string{"Type", "NotifyAccess", "ExecStart", "Restart", "RestartSec", "TimeoutStartSec"}, key) {
			continue
		}
		settings = append(settings, strings.TrimSpace(line))
	}
	return settings
}

// removeCgroup ends what is left in a cgroup and removes it.
func removeCgroup(t *testing.T, root string) {
	if err := os.WriteFile(root+"/cgroup.kill", []byte("1"), 0); err != nil && !os.IsNotExist(err) {
		t.Log(err)
	}
	var all []string
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			all = append(all, path)
		}
		return err
	})
	for n := len(all) - 1; n >= 0 && err == nil; n-- {
		err = os.Remove(all[n])
	}
	if err != nil {
		t.Logf("a cgroup is left: %v", err)
	}
}
