// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/secrets"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/fixture"
	"github.com/caisson-os/caisson/test/require"
)

// TestReadersAreAskedBeforePID1: what a program of the new root does not take is not written into
// it, whether it is a text or a secret, and whether the loader makes the root or the agent before
// a soft-reboot. What the layer has at the path stays.
func TestReadersAreAskedBeforePID1(t *testing.T) {
	require.Root(t)
	require.Tool(t, "visudo", "sshd")
	for _, later := range []bool{false, true} {
		n := newNode(t, t.TempDir(), true)
		for _, dir := range []string{"dev", "run", "etc/sudoers.d", "etc/ssh/sshd_config.d"} {
			if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, dir := range []string{"lib", "lib64"} {
			if err := os.Symlink("usr/"+dir, n.path(dir)); err != nil {
				t.Fatal(err)
			}
		}
		if err := cmp.Or(os.WriteFile(n.path("/etc/passwd"), []byte("root:x:0:0::/root:/bin/sh\nsshd:x:100:100::/run/sshd:/bin/false\n"), 0o644),
			os.WriteFile(n.path("/etc/sudoers"), nil, 0o440), unix.Mount("/usr", n.path("/usr"), "", unix.MS_BIND, "")); err != nil {
			t.Fatal(err)
		}
		n.SecretDir, n.SecretsLater = filepath.Join(t.TempDir(), "secret"), later
		key, err := secrets.Keys{State: n.State.Path()}.Ensure(t.Logf)
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		n.Say = func(format string, args ...any) { t.Logf(format, args...); fmt.Fprintf(&said, format+"\n", args...) }
		const rule, wrong, option = "ops ALL=(ALL) NOPASSWD: ALL\n", "ops ALL=(ALL) NOPASWD ALL\n", "PermitRootLogn hunter2\n"
		n.Overlay.Secrets = []spec.Secret{fixture.Seal(t, "good", key.Recipient(), rule), fixture.Seal(t, "wrong", key.Recipient(), wrong), fixture.Seal(t, "option", key.Recipient(), option)}
		taken := map[string]bool{}
		add := func(path string, f spec.File, ok bool) {
			f.Path, taken[path] = path, ok
			n.Overlay.Items.Files = append(n.Overlay.Items.Files, f)
			if err := os.WriteFile(n.path(path), []byte("# of the layer\n"), 0o440); err != nil {
				t.Fatal(err)
			}
		}
		add("/etc/sudoers.d/a", spec.File{Content: rule}, true)
		add("/etc/sudoers.d/b", spec.File{Content: wrong}, false)
		add("/etc/sudoers.d/c", spec.File{Secret: "good"}, true)
		add("/etc/sudoers.d/d", spec.File{Secret: "wrong"}, false)
		add("/etc/ssh/sshd_config.d/a.conf", spec.File{Content: option}, false)
		add("/etc/ssh/sshd_config.d/b.conf", spec.File{Secret: "option"}, false)
		add("/etc/ssh/sshd_config.d/c.conf", spec.File{Content: "PermitRootLogin no\n"}, true)
		if err := n.files(); err != nil {
			t.Fatal(err)
		}
		for path, ok := range taken {
			text, err := os.ReadFile(n.path(path))
			if stays := err == nil && string(text) == "# of the layer\n"; stays == ok {
				t.Errorf("later %t: %s stays: %t, %v", later, path, stays, err)
			}
			if named := strings.Contains(said.String(), "file "+path+" is not written: /usr/sbin/"); named == ok {
				t.Errorf("later %t: %s is said to be kept: %t", later, path, named)
			}
		}
		if hidden := "file /etc/ssh/sshd_config.d/b.conf is not written: /usr/sbin/sshd does not take it: what it says is not shown, since the file is a secret"; !strings.Contains(said.String(), hidden) {
			t.Errorf("later %t: %s", later, said.String())
		}
		if left, err := os.ReadDir(n.path("/run")); err != nil || len(left) > 0 {
			t.Errorf("later %t: left behind: %v, %v", later, left, err)
		}
	}
}
