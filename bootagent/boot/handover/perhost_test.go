// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/internal/perhost"
	"github.com/caisson-os/caisson/spec"
)

const iscsiName, mungeKey = "etc/iscsi/initiatorname.iscsi", "etc/munge/munge.key"

// newOwner is a node whose layer has every program of the table, and one user and group of
// number 77 for each owner.
func newOwner(t *testing.T, disk string, kept bool) *Node {
	t.Helper()
	n := newNode(t, disk, kept)
	names := "root:x:0:0::/:\n"
	text := map[string]string{}
	for _, row := range perhost.Table {
		for _, f := range row.Files {
			text[f.For] = ""
			for _, name := range []string{f.Owner, f.Group} {
				names += name + ":x:77:77::/:\n"
			}
		}
	}
	text["/etc/passwd"], text["/etc/group"] = names, names
	for name, text := range text {
		if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(n.path(name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestPerHost: with a disk all is equal after a reboot, without one the names are.
func TestPerHost(t *testing.T) {
	disk := t.TempDir()
	first, again := do(t, newOwner(t, disk, true)), do(t, newOwner(t, disk, true))
	bare, other := newOwner(t, t.TempDir(), false), newOwner(t, t.TempDir(), true)
	other.Overlay.Node = "other"
	diskless, elsewhere := do(t, bare), do(t, other)
	for _, row := range perhost.Table {
		for _, f := range row.Files {
			one := first(f.Path)
			if one == "" || one != again(f.Path) {
				t.Errorf("%s was %q, and is %q after a reboot", f.Path, one, again(f.Path))
			}
			if one == elsewhere(f.Path) {
				t.Errorf("%s is that of another node: %q", f.Path, one)
			}
			name := row.Text != nil || f.Path == "/"+iscsiName || filepath.Dir(f.Path) == "/etc/nvme"
			if name != (one == diskless(f.Path)) {
				t.Errorf("%s: a name is %v; without a disk it is %q", f.Path, name, diskless(f.Path))
			}
			info, err := os.Lstat(bare.path(f.Path))
			if err != nil {
				t.Fatal(err)
			}
			owner, want := info.Sys().(*syscall.Stat_t), map[bool]uint32{true: 77}
			if info.Mode() != f.Mode || owner.Uid != want[f.Owner != ""] || owner.Gid != want[f.Group != ""] {
				t.Errorf("%s has mode %v and belongs to %d:%d", f.Path, info.Mode(), owner.Uid, owner.Gid)
			}
		}
	}
	plain := newNode(t, t.TempDir(), true)
	do(t, plain)
	if plain.exists(iscsiName) || plain.exists(mungeKey) {
		t.Error("files of programs that the layer lacks are made")
	}
}

// TestPerHostOnPersistedPaths: a disk is not seeded with what is made, a name that an older
// layer has brought to it is replaced, a key stays.
func TestPerHostOnPersistedPaths(t *testing.T) {
	disk := t.TempDir()
	n := newOwner(t, disk, true)
	n.Overlay.Persist = []string{"/etc/iscsi", "/etc/munge", "/etc/ssh"}
	for name, text := range map[string]string{iscsiName: "InitiatorName=iqn.shared\n", mungeKey: "of before"} {
		at := filepath.Join(disk, "persist", name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read, want := do(t, n), do(t, newOwner(t, t.TempDir(), false))
	if got := read(iscsiName); got != want(iscsiName) {
		t.Errorf("the node is %q", got)
	}
	if got := read(mungeKey); got != "of before" {
		t.Errorf("a key that the disk had became %q", got)
	}
	if read("etc/ssh/ssh_host_ed25519_key") == "" {
		t.Error("a persisted /etc/ssh hides the host key")
	}
	stuck := newOwner(t, disk, true)
	stuck.Overlay.Persist = n.Overlay.Persist
	readOnly(t, stuck)
	if got := do(t, stuck)(iscsiName); got != want(iscsiName) {
		t.Errorf("with a disk that takes nothing the node is %q", got)
	}
}

// TestSiteNamesAnInitiator: the site's file wins, and what the node would have is what comes
// back when the site takes its file away.
func TestSiteNamesAnInitiator(t *testing.T) {
	n := newOwner(t, t.TempDir(), false)
	n.Overlay.Items.Files = []spec.File{{Path: "/" + iscsiName, Content: "InitiatorName=iqn.site\n", Mode: "0600"}}
	if got := do(t, n)(iscsiName); got != "InitiatorName=iqn.site\n" {
		t.Errorf("%q", got)
	}
	if len(n.Originals) != 1 || n.Originals[0].Key != "/"+iscsiName {
		t.Errorf("originals: %+v", n.Originals)
	}
}

// TestKept: a disk keeps what the table says, seeded with no more than the layer has, unless the
// site keeps or mounts it itself; without a disk nothing is said of it.
func TestKept(t *testing.T) {
	disk := t.TempDir()
	made := func(n *Node) *Node {
		t.Helper()
		for _, dir := range []string{"/var/lib/mysql", "/var/lib/postgresql/17"} {
			if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		n.Overlay.Persist = []string{"/var/lib/postgresql"}
		return n
	}
	n := made(newNode(t, disk, true))
	do(t, n)
	if err := os.WriteFile(n.path("/var/lib/mysql/ibdata1"), []byte("rows"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := do(t, made(newNode(t, disk, true)))("var/lib/mysql/ibdata1"); got != "rows" {
		t.Errorf("after a reboot there is %q", got)
	}
	bare := made(newNode(t, t.TempDir(), false))
	do(t, bare)
	if bare.exists("/var/lib/mysql/ibdata1") {
		t.Error("the rows are there without a disk")
	}
	if _, err := os.Stat(filepath.Join(disk, "persist/var/lib/snmp")); err == nil {
		t.Error("a directory that the layer lacks is kept")
	}
	own := made(newNode(t, t.TempDir(), true))
	own.Overlay.Items.Mounts = []spec.Mount{{Target: "/var/lib/mysql"}}
	do(t, own)
	if _, err := os.Stat(own.State.Path("persist/var/lib/mysql")); err == nil {
		t.Error("a directory that the site mounts is kept")
	}
}
