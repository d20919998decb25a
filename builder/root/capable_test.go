// SPDX-License-Identifier: Apache-2.0

package root

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

func TestUnprivileged(t *testing.T) {
	failed := errors.New("mount /proc: operation not permitted")
	for _, c := range []struct {
		u          Unprivileged
		want, hint string
	}{
		{Unprivileged{Missing: []string{"CAP_SYS_ADMIN"}, user: true}, "needs CAP_SYS_ADMIN, which", "sudo, or without root: unshare"},
		{Unprivileged{Missing: []string{"CAP_SYS_ADMIN"}}, "needs CAP_SYS_ADMIN, which", "podman run --cap-add SYS_ADMIN"},
		{Unprivileged{IDs: 1}, "IDs 0 to 65534, and this user namespace has 1", "unshare --map-root-user --map-auto"},
		{Unprivileged{Err: failed}, "mount /proc", "--cap-add SYS_ADMIN"},
	} {
		if got, hint := c.u.Error(), c.u.Hint(); !strings.Contains(got, c.want) || !strings.Contains(hint, c.hint) {
			t.Errorf("%q, %q; want %q, %q", got, hint, c.want, c.hint)
		}
	}
	for text, want := range map[string]int{"         0          0 4294967295\n": 4294967295, "0 100000 65536\n": 65536, "0 1000 1\n1 100000 65536\n": 65537,
		"1 100000 65536\n0 1000 1\n": 65537, "0 1000 1\n": 1, "0 1000 1\n2 100000 65536\n": 1, "": 0} {
		if got := mapped(text); got != want {
			t.Errorf("%q maps %d, want %d", text, got, want)
		}
	}
}

// tryIn runs [Capable] and [Try] in this test's own program, started with less.
func tryIn(t *testing.T, attr *syscall.SysProcAttr) string {
	t.Helper()
	work := t.TempDir()
	if err := os.Chmod(filepath.Dir(work), 0o755); err != nil {
		t.Fatal(err)
	}
	if len(attr.UidMappings) > 0 {
		if err := os.Chown(work, attr.UidMappings[0].HostID, attr.GidMappings[0].HostID); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), tryEnv+"="+work)
	cmd.SysProcAttr = attr
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, &said)
	}
	return said.String()
}

// What a build says at its start, in the places where people try it.
func TestTry(t *testing.T) {
	require.Root(t)
	const host = 3 << 20 // IDs that nobody has
	users := func(n int) *syscall.SysProcAttr {
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: host, Size: n}}
		return &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNS, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
			Credential: &syscall.Credential{}}
	}
	for _, c := range []struct {
		name string
		attr *syscall.SysProcAttr
		want string
	}{
		{"root", &syscall.SysProcAttr{}, "capable"},
		{"a user", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: host, Gid: host}}, "CAP_SYS_ADMIN, which this process does not have"},
		{"a user namespace", users(65536), "capable"},
		{"a user namespace of one user", users(1), "this user namespace has 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := tryIn(t, c.attr); !strings.Contains(got, c.want) {
				t.Errorf("said %q, want %q", got, c.want)
			}
		})
	}
}
