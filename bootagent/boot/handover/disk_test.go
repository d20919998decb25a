// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
)

// readOnly makes the node's state disk one that takes nothing any more.
func readOnly(t *testing.T, n *Node) {
	t.Helper()
	dir := n.State.Path()
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) }) // a lazy unmount: the mount is this test's alone
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
}

// A disk that is full or has turned read-only must not keep a node from booting.
func TestADiskThatTakesNothing(t *testing.T) {
	disk := t.TempDir()
	fresh := newNode(t, disk, true)
	readOnly(t, fresh)
	read := do(t, fresh)
	if got, want := read("etc/machine-id"), derivedID("metal-a", "superhost", fresh.UUID); got != want {
		t.Errorf("machine-id %q, want that of a node without disk", got)
	}
	if read("etc/ssh/ssh_host_ed25519_key") == "" {
		t.Error("no host key")
	}
	if fresh.exists("var/lib/systemd/random-seed") {
		t.Error("a seed that could not be replaced is used")
	}
}

func TestADiskThatTurnedReadOnly(t *testing.T) {
	disk := t.TempDir()
	before := do(t, newNode(t, disk, true))
	n := newNode(t, disk, true)
	if err := os.MkdirAll(filepath.Join(n.Root, "home/new"), 0o755); err != nil {
		t.Fatal(err)
	}
	readOnly(t, n)
	after := do(t, n)
	for _, name := range []string{"etc/machine-id", "etc/ssh/ssh_host_ed25519_key", "home/admin/.profile"} {
		if a, b := before(name), after(name); a != b {
			t.Errorf("%s changed from %q to %q", name, a, b)
		}
	}
}

// Memory over a read-only disk takes writes, and forgets them: the node is the same,
// but no seed may serve twice, and container runtimes need a real file system.
func TestMemoryOverAReadOnlyDisk(t *testing.T) {
	disk := t.TempDir()
	before := do(t, newNode(t, disk, true))
	n := newNode(t, disk, true)
	n.ReadOnly = true
	after := do(t, n)
	for _, name := range []string{"etc/machine-id", "etc/ssh/ssh_host_ed25519_key", "home/admin/.profile"} {
		if a, b := before(name), after(name); a != b {
			t.Errorf("%s changed from %q to %q", name, a, b)
		}
	}
	if n.exists("var/lib/systemd/random-seed") {
		t.Error("a seed that the next boot finds again is used")
	}
	var fs unix.Statfs_t
	n.Overlay.Items.Mounts = []spec.Mount{{Target: "/var/lib/containers/storage"}, {Target: "/var/lib/docker-else"}}
	if n.sites("/var/lib/containers") || n.sites("/var/lib/docker") {
		t.Error("a mount below counts as one above")
	}
	n.Overlay.Items.Mounts[0].Target = "/var/lib/containers"
	if !n.sites("/var/lib/containers") {
		t.Error("the site's own mount is hidden")
	}
	if err := unix.Statfs(n.path("var/lib/docker"), &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Errorf("/var/lib/docker is on a file system of type %x, %v", fs.Type, err)
	}
}

func TestRottenIdentityIsMadeAnew(t *testing.T) {
	disk := t.TempDir()
	do(t, newNode(t, disk, true))
	for name, text := range map[string]string{
		"machine-id":            "0123456789abcdef\nPATH=/evil 0123456789",
		"ssh_host_ed25519_seed": "short",
	} {
		if err := os.WriteFile(filepath.Join(disk, "identity", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(disk, "identity", "random-seed")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", filepath.Join(disk, "identity", "random-seed")); err != nil {
		t.Fatal(err)
	}
	first, second := do(t, newNode(t, disk, true)), do(t, newNode(t, disk, true))
	if id := first("etc/machine-id"); len(id) != 33 || strings.Contains(id, "PATH") || id != second("etc/machine-id") {
		t.Errorf("machine-id %q, then %q", id, second("etc/machine-id"))
	}
	for name, want := range map[string]string{"machine-id": "0123456789abcdef\nPATH=/evil 0123456789", "ssh_host_ed25519_seed": "short"} {
		if kept, err := os.ReadFile(filepath.Join(disk, "identity", name+".damaged-1")); string(kept) != want {
			t.Errorf("%s: %q is kept of it, %v", name, kept, err)
		}
	}
}

// What lies in the place of a file is moved away like one that is damaged.
func TestADirectoryForAnIdentity(t *testing.T) {
	disk := t.TempDir()
	do(t, newNode(t, disk, true))
	for _, name := range []string{"machine-id", "ssh_host_ed25519_seed"} {
		file := filepath.Join(disk, "identity", name)
		if err := errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "x"), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	first, second := do(t, newNode(t, disk, true)), do(t, newNode(t, disk, true))
	for _, name := range []string{"etc/machine-id", "etc/ssh/ssh_host_ed25519_key"} {
		if first(name) == "" || first(name) != second(name) {
			t.Errorf("%s: %q, then %q", name, first(name), second(name))
		}
	}
}

// A power cut in the middle of seeding leaves a part that must not be taken for
// what the disk has.
func TestSeedingThatWasCut(t *testing.T) {
	disk := t.TempDir()
	part := filepath.Join(disk, "seed.partial")
	if err := os.MkdirAll(filepath.Join(part, "admin"), 0o700); err != nil {
		t.Fatal(err)
	}
	n := newNode(t, disk, true)
	if got := do(t, n)("home/admin/.profile"); got != "home/admin/.profile" {
		t.Errorf("a home that was cut lacks its files: %q", got)
	}
	if _, err := os.Lstat(part); err == nil {
		t.Error("the part is still there")
	}
}

// What a user puts into a persisted directory must not lead the loader elsewhere.
func TestLinksInPersistedFolders(t *testing.T) {
	disk := t.TempDir()
	n := newNode(t, disk, true)
	for _, dir := range []string{"home/admin/data/sub", "home/admin/conf/sub"} {
		if err := os.MkdirAll(filepath.Join(n.Root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	etc := filepath.Join(n.Root, "etc")
	if err := os.MkdirAll(filepath.Join(disk, "persist/home/admin"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"data", "conf"} {
		if err := os.Symlink(etc, filepath.Join(disk, "persist/home/admin", name)); err != nil {
			t.Fatal(err)
		}
	}
	n.Overlay.Persist = []string{"/home", "/home/admin/data"}
	read := do(t, n)
	if got := read("etc/hostname"); got != "superhost\n" {
		t.Errorf("/etc/hostname is %q: something is mounted over /etc", got)
	}
	if n.exists("etc/sub") {
		t.Error("the layer's folders were brought to where a link leads")
	}
}
