// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/itemtest"
)

// Where systemd unmounts all, it leaves the state disk alone, whose images are in use.
func TestTheStateDiskStaysMounted(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	states := map[string]string{"/run/caisson/disk": "success active", "/run/other": "exit-code active"}
	for at := range states { // where systemd sees it
		if err := errors.Join(os.MkdirAll(at, 0o755), unix.Mount("test", at, "tmpfs", 0, "")); err != nil {
			t.Fatal(err)
		}
		image, err := os.Create(filepath.Join(at, "image"))
		if err != nil {
			t.Fatal(err)
		}
		defer image.Close() // only held
	}
	n := newNode(t, t.TempDir(), true)
	read := do(t, n)
	text := read("etc/systemd/system/run-caisson-disk.mount.d/60-caisson-stay.conf")
	if read("etc/systemd/system/var-lib-caisson.mount.d/60-caisson-stay.conf") != text {
		t.Error("the service stages through another mount")
	}
	for name, text := range map[string]string{"umount.target": "[Unit]\nDefaultDependencies=no\n", "run-caisson-disk.mount.d/stay.conf": text} {
		name = filepath.Join("/run/units", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"daemon-reload"}, {"start", "umount.target"}} {
		if out, err := systemctl(args...); err != nil {
			t.Fatal(out, err)
		}
	}
	for at, want := range states {
		unit := strings.ReplaceAll(at[1:], "/", "-") + ".mount"
		out, err := systemctl("show", "-P", "Result", "-P", "ActiveState", unit)
		if got := strings.Join(strings.Fields(out), " "); err != nil || got != want {
			t.Errorf("%s is %q, want %q, %v", unit, got, want, err)
		}
	}
}
