// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/boot/network/table"
	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/packaging/systemd"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// newNode makes a root with the few things of a layer that handover looks at,
// in a mount namespace of the test's own thread.
func newNode(t *testing.T, stateDir string, disk bool) *Node {
	t.Helper()
	require.Root(t)
	runtime.LockOSThread() // and never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := unix.Mount(root, root, "", unix.MS_BIND, ""); err != nil { // one mount to take all below it away with
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(root, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	for _, dir := range []string{"etc/ssh", "usr/bin", "usr/sbin", "usr/lib/systemd", "var/lib/systemd", "var/lib/docker", "var/log/journal", "home/admin"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, mode := range map[string]os.FileMode{"usr/sbin/sshd": 0o755, "usr/bin/containerd": 0o755, "etc/machine-id": 0o444, "home/admin/.profile": 0o640, "var/log/dpkg.log": 0o644} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(name), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(filepath.Join(root, "home/admin"), 1000, 1001); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(root, "var/log/journal"), 0o755|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	s, err := state.Open(stateDir)
	if err != nil {
		t.Fatal(err)
	}
	return &Node{
		Root: root, State: s, Disk: disk, UUID: "4c4c4544-0000-2010-8020-80c04f202020",
		Overlay: &spec.Overlay{Core: spec.Core{Fleet: "metal-a", Node: "superhost", Persist: []string{"/var/log", "/home"}, Network: spec.Network{NTP: []string{"ntp.example.org"}}}},
		Network: table.Boot{Lease: &record.Lease{Interface: "eth0", MAC: "52:54:00:00:00:01", Address: netip.MustParsePrefix("10.0.2.15/24"), DNS: []netip.Addr{netip.MustParseAddr("10.0.2.3")}, Domain: "example.org"}},
		Say:     t.Logf,
	}
}

func do(t *testing.T, n *Node) func(name string) string {
	t.Helper()
	if _, err := n.Do(); err != nil {
		t.Fatal(err)
	}
	return func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(n.Root, name))
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
}

func TestDiskless(t *testing.T) {
	n := newNode(t, t.TempDir(), false)
	read := do(t, n)
	id := read("etc/machine-id")
	if len(id) != 33 || id != derivedID("metal-a", "superhost", n.UUID) {
		t.Errorf("machine-id %q", id)
	}
	if got := read("etc/hostname"); got != "superhost\n" {
		t.Errorf("hostname %q", got)
	}
	if got := read("etc/hosts"); !strings.Contains(got, "127.0.1.1 superhost.example.org superhost\n") {
		t.Errorf("hosts:\n%s", got)
	}
	if got := read("etc/resolv.conf"); got != "nameserver 10.0.2.3\n" {
		t.Errorf("resolv.conf:\n%s", got)
	}
	got := read("etc/systemd/network/20-caisson-boot.network")
	for _, want := range []string{"MACAddress=52:54:00:00:00:01\n", "KeepConfiguration=", "ClientIdentifier=mac\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("network file lacks %q:\n%s", want, got)
		}
	}
	key, err := ssh.ParsePrivateKey([]byte(read("etc/ssh/ssh_host_ed25519_key")))
	if err != nil {
		t.Fatal(err)
	}
	public, comment, _, _, err := ssh.ParseAuthorizedKey([]byte(read("etc/ssh/ssh_host_ed25519_key.pub")))
	if err != nil || comment != "superhost" || string(public.Marshal()) != string(key.PublicKey().Marshal()) {
		t.Errorf("the public key is another one: %v, comment %q", err, comment)
	}
	if err := os.WriteFile(filepath.Join(n.Root, "usr/x"), nil, 0o644); err != unix.EROFS && !strings.Contains(err.Error(), "read-only") {
		t.Errorf("write below /usr: %v, want a read-only file system", err)
	}
	usr, _ := os.Stat(filepath.Join(n.Root, "usr"))
	for _, stamp := range []string{"etc/.updated", "var/.updated"} {
		info, err := os.Stat(filepath.Join(n.Root, stamp))
		if err != nil || info.ModTime().Before(usr.ModTime()) {
			t.Errorf("%s: %v; systemd would take this for a first boot", stamp, err)
		}
	}
	var fs unix.Statfs_t
	for _, dir := range []string{"var/lib/docker", "var/lib/containerd"} { // that of a program is made
		if err := unix.Statfs(filepath.Join(n.Root, dir), &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
			t.Errorf("/%s is file system %#x, %v; want tmpfs", dir, fs.Type, err)
		}
	}
	if n.exists("var/lib/kubelet") {
		t.Error("a program that is not there has a directory")
	}
}

// The agent's directory is closed to others, with the disk or memory on it and without.
func TestStateDirectory(t *testing.T) {
	n := newNode(t, t.TempDir(), true)
	do(t, n)
	at := n.path(paths.State)
	for range 2 {
		if info, err := os.Stat(at); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Fatal(err)
		}
	}
}

func TestIdentityOutlivesRoots(t *testing.T) {
	disk := t.TempDir()
	first := do(t, newNode(t, disk, true))
	second := do(t, newNode(t, disk, true))
	for _, name := range []string{"etc/machine-id", "etc/ssh/ssh_host_ed25519_key"} {
		if a, b := first(name), second(name); a == "" || a != b {
			t.Errorf("%s changed from %q to %q", name, a, b)
		}
	}
	if id := first("etc/machine-id"); id == derivedID("metal-a", "superhost", "4c4c4544-0000-2010-8020-80c04f202020") {
		t.Error("a node with a disk has a guessable machine-id")
	}
	third := do(t, newNode(t, disk, true))
	if a, b := second("var/lib/systemd/random-seed"), third("var/lib/systemd/random-seed"); a == b {
		t.Error("one random seed served two boots")
	}
}

// Without a disk the next root is the same node for as long as memory lasts.
func TestIdentityOutlivesRootsInMemory(t *testing.T) {
	memory := t.TempDir()
	first, second, other := do(t, newNode(t, memory, false)), do(t, newNode(t, memory, false)), do(t, newNode(t, t.TempDir(), false))
	for _, name := range []string{"etc/machine-id", "etc/ssh/ssh_host_ed25519_key"} {
		if a, b := first(name), second(name); a == "" || a != b {
			t.Errorf("%s changed from %q to %q", name, a, b)
		}
	}
	if first("etc/ssh/ssh_host_ed25519_key") == other("etc/ssh/ssh_host_ed25519_key") {
		t.Error("two boots have one host key")
	}
}

func TestPersistIsSeededOnce(t *testing.T) {
	disk := t.TempDir()
	n := newNode(t, disk, true)
	read := do(t, n)
	if got := read("home/admin/.profile"); got != "home/admin/.profile" {
		t.Errorf("a new home lacks its files: %q", got)
	}
	info, err := os.Stat(filepath.Join(n.Root, "home/admin"))
	if err != nil {
		t.Fatal(err)
	}
	if owner := info.Sys().(*syscall.Stat_t); owner.Uid != 1000 || owner.Gid != 1001 {
		t.Errorf("home belongs to %d:%d", owner.Uid, owner.Gid)
	}
	journal, err := os.Stat(filepath.Join(n.Root, "var/log/journal"))
	if err != nil || journal.Mode()&os.ModeSetgid == 0 {
		t.Errorf("journal folder: %v, %v; want setgid", journal.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(n.Root, "home/admin/.profile"), []byte("mine"), 0o640); err != nil {
		t.Fatal(err)
	}
	n = newNode(t, disk, true)
	if err := os.MkdirAll(filepath.Join(n.Root, "var/log/new"), 0o750); err != nil {
		t.Fatal(err)
	}
	read = do(t, n)
	if got := read("home/admin/.profile"); got != "mine" {
		t.Errorf("the layer overwrote what the disk had: %q", got)
	}
	if info, err := os.Stat(filepath.Join(n.Root, "var/log/new")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("a folder that a new layer brings: %v", err)
	}
}

func TestStaticAddress(t *testing.T) {
	n := newNode(t, t.TempDir(), false)
	n.Overlay.Network.Interfaces = []spec.Interface{{MAC: n.Network.Lease.MAC, Addresses: []string{"192.0.2.7/24"}, Gateway: "192.0.2.1", MTU: 9000}}
	read := do(t, n)
	got := read("etc/systemd/network/10-caisson-00.network")
	for _, want := range []string{"Address=192.0.2.7/24\n", "Gateway=192.0.2.1\n", "MTUBytes=9000\n", "DHCP=no\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q:\n%s", want, got)
		}
	}
	if n.exists("/etc/systemd/network/20-caisson-boot.network") {
		t.Error("the interface has DHCP too")
	}
}

// The service of a node without a disk may bring images into memory that are larger than
// what it needs for itself; with a disk its limits stay.
func TestMemory(t *testing.T) {
	const dropIn = "etc/systemd/system/caisson-agent.service.d/60-caisson-memory.conf"
	withDisk := newNode(t, t.TempDir(), true)
	do(t, withDisk)
	if _, err := os.Lstat(withDisk.path(dropIn)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with a disk: %v", err)
	}
	if !itemtest.InSystemd(t) {
		return
	}
	n := newNode(t, t.TempDir(), false)
	text := do(t, n)(dropIn)
	unit, err := systemd.Units.ReadFile("caisson-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"caisson-agent.service": string(unit), "caisson-agent.service.d/memory.conf": text} {
		name = filepath.Join("/run/units", name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	out, err := systemctl("show", "-P", "MemoryHigh", "-P", "MemoryMax", "caisson-agent.service")
	if err != nil || strings.Contains(out, "134217728") || strings.Contains(out, "268435456") || !strings.Contains(out, "infinity") {
		t.Errorf("its limits are %q, %v", out, err)
	}
}

func TestRelease(t *testing.T) {
	for _, c := range []struct{ name, version, baked, want string }{
		{"usual", "2026.11", "NAME=\"Debian\"\nID=debian", "NAME=\"Debian\"\nID=debian\nIMAGE_ID=\"metal-a\"\nIMAGE_VERSION=\"2026.11\"\n"},
		{"of an image already", "v2", "ID=debian\nIMAGE_ID=other\nIMAGE_VERSION=1\n", "ID=debian\nIMAGE_ID=\"metal-a\"\nIMAGE_VERSION=\"v2\"\n"},
		{"no version", "", "ID=debian\n", ""},
		{"not a distribution", "v2", "", ""},
	} {
		n := &Node{Root: t.TempDir(), Version: c.version, Overlay: &spec.Overlay{Core: spec.Core{Fleet: "metal-a"}}}
		if c.baked != "" {
			name := n.path("usr/lib/os-release")
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(c.baked), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.release(); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(n.path("etc/os-release")); string(got) != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// TestTimeServers: the service that the layer has hears of the site's servers, in place of
// those of its package.
func TestTimeServers(t *testing.T) {
	for _, s := range spec.TimeServices {
		t.Run(s.Package, func(t *testing.T) {
			n := newNode(t, t.TempDir(), false)
			put(t, n, "usr/lib/systemd/system/"+s.Unit, "")
			put(t, n, s.Config, "pool 2.debian.pool.ntp.org iburst\nrtcsync\n")
			got := do(t, n)(s.Config)
			if !strings.Contains(got, "ntp.example.org") || strings.Contains("\n"+got, "\npool") {
				t.Errorf("%s: %q", s.Config, got)
			}

			own := newNode(t, t.TempDir(), false)
			put(t, own, "usr/lib/systemd/system/"+s.Unit, "")
			own.Overlay.Items.Files = []spec.File{{Path: s.Config, Content: "own", Mode: "0644"}}
			if got := do(t, own)(s.Config); got != "own" {
				t.Errorf("the site's own %s: %q", s.Config, got)
			}
		})
	}
}

func put(t *testing.T, n *Node, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.path(name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
