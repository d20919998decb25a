// SPDX-License-Identifier: Apache-2.0

package perm

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/safepath"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

func snapshot(t *testing.T, root string) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s %o %d:%d\n", strings.TrimPrefix(path, root), st.Mode, st.Uid, st.Gid)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// files makes empty files with exact modes.
func files(t *testing.T, root string, modes map[string]uint32) {
	t.Helper()
	for name, mode := range modes {
		path := filepath.Join(root, name)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := unix.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
}

func run(t *testing.T, j item.Journal, want *spec.Perm) {
	t.Helper()
	it := New(want, "", j, t.Logf)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
}

func mode(t *testing.T, path string) uint32 {
	t.Helper()
	var walk safepath.Walk
	defer walk.Close()
	f, err := open(&walk, path)
	if err != nil {
		t.Fatal(err)
	}
	f.close()
	return f.attr.Mode
}

func world(owner string) func(t *testing.T) itemtest.World {
	return func(t *testing.T) itemtest.World {
		root, state := t.TempDir(), t.TempDir()
		files(t, root, map[string]uint32{"a.conf": 0o644, "b.conf": 0o600, "tool": 0o4755, "right": 0o640})
		want := &spec.Perm{Paths: []spec.PermPath{
			{Path: root + "/*.conf", Mode: "u=rw,go=", Owner: owner, Group: owner},
			{Path: root + "/b.conf", Mode: "g+r"},
			{Path: root + "/tool", Mode: "4750"},
			{Path: root + "/a.conf", Owner: owner, Mode: "4711"},
			{Path: root + "/right", Mode: "0640"},
		}}
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return New(want, state, j, t.Logf) },
			Empty:    func(j item.Journal) item.Item { return New(nil, state, j, t.Logf) },
			Snapshot: func() string { return snapshot(t, root) },
		}
	}
}

func TestConformance(t *testing.T) { itemtest.Run(t, world("")) }

func TestConformanceWithOwners(t *testing.T) {
	require.Root(t)
	itemtest.Run(t, world("12345"))
}

// Removing the whole stanza restores too, also a setuid bit of a file that
// nobody else could write to meanwhile.
func TestSetuidSurvives(t *testing.T) {
	root := t.TempDir()
	files(t, root, map[string]uint32{"tool": 0o4755})
	j := itemtest.Journal(t, t.TempDir())
	run(t, j, &spec.Perm{Paths: []spec.PermPath{{Path: root + "/tool", Mode: "0700"}}})
	if got := mode(t, root+"/tool"); got != 0o700 {
		t.Fatalf("mode %04o after apply, want 0700", got)
	}
	if err := New(nil, "", j, t.Logf).Restore(t.Context(), j.Entries(Name)); err != nil {
		t.Fatal(err)
	}
	if got := mode(t, root+"/tool"); got != 0o4755 {
		t.Fatalf("mode %04o after restore, want 4755", got)
	}
}

// A program of one owner is not a program of another: what it may do goes.
func TestCapabilitiesGoWithTheOwner(t *testing.T) {
	require.Root(t)
	root := t.TempDir()
	files(t, root, map[string]uint32{"ping": 0o755})
	caps := []byte{1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // cap_net_raw=ep, version 2
	if err := unix.Setxattr(root+"/ping", "security.capability", caps, 0); err != nil {
		require.Missing(t, "filecaps", fmt.Sprintf("the file system of %s takes no file capabilities: %v", root, err))
	}
	run(t, itemtest.Journal(t, t.TempDir()), &spec.Perm{Paths: []spec.PermPath{{Path: root + "/ping", Group: "12345"}}})
	if n, err := unix.Getxattr(root+"/ping", "security.capability", nil); err == nil {
		t.Fatalf("%d bytes of capabilities are left", n)
	}
}

// A link is refused; its target, which chmod(1) would follow to, keeps its mode.
func TestSymlinkRefused(t *testing.T) {
	root := t.TempDir()
	files(t, root, map[string]uint32{"target": 0o600})
	if err := os.Symlink("target", root+"/link"); err != nil {
		t.Fatal(err)
	}
	it := New(&spec.Perm{Paths: []spec.PermPath{{Path: root + "/link", Mode: "0777"}}}, "", itemtest.Journal(t, t.TempDir()), t.Logf)
	drift, err := it.Check(t.Context())
	if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionRefuse || !strings.Contains(drift[0].Reason, "symbolic link") {
		t.Fatalf("drift %+v, %v", drift, err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	if got := mode(t, root+"/target"); got != 0o600 {
		t.Fatalf("the target has mode %04o", got)
	}
}

func TestReplacedFileIsLeftAlone(t *testing.T) {
	root := t.TempDir()
	files(t, root, map[string]uint32{"f": 0o600})
	j := itemtest.Journal(t, t.TempDir())
	run(t, j, &spec.Perm{Paths: []spec.PermPath{{Path: root + "/f", Mode: "0640"}}})
	files(t, root, map[string]uint32{"new": 0o640})
	if err := os.Rename(root+"/new", root+"/f"); err != nil {
		t.Fatal(err)
	}
	if err := New(nil, "", j, t.Logf).Restore(t.Context(), j.Entries(Name)); err != nil {
		t.Fatal(err)
	}
	if got := mode(t, root+"/f"); got != 0o640 {
		t.Fatalf("mode %04o: the original went onto another file", got)
	}
}

// A file system gives the number of a removed file to the next one.
func TestReplacedFileWithTheSameInodeIsLeftAlone(t *testing.T) {
	root := t.TempDir()
	files(t, root, map[string]uint32{"f": 0o600})
	j := itemtest.Journal(t, t.TempDir())
	run(t, j, &spec.Perm{Paths: []spec.PermPath{{Path: root + "/f", Mode: "0640"}}})
	e := j.Entries(Name)[0]
	was, did := item.Was[attr](e), item.Did[applied](e)
	if was.Born == 0 {
		require.Missing(t, "btime", "the file system of "+root+" keeps no time of birth")
	}
	was.Born--
	did.Attr.Born--
	e.Prior, e.Applied = item.Raw(was), item.Raw(did)
	if err := New(nil, "", j, t.Logf).Restore(t.Context(), []item.Entry{e}); err != nil {
		t.Fatal(err)
	}
	if got := mode(t, root+"/f"); got != 0o640 {
		t.Fatalf("mode %04o: the original went onto another file", got)
	}
}

func TestMissing(t *testing.T) {
	root := t.TempDir()
	want := &spec.Perm{Paths: []spec.PermPath{{Path: root + "/none", Mode: "0600"}, {Path: root + "/no*", Mode: "0600"}}}
	for _, ignore := range []bool{false, true} {
		want.IgnoreMissing = ignore
		drift, err := New(want, "", itemtest.Journal(t, t.TempDir()), t.Logf).Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := map[bool]int{false: 2, true: 0}[ignore]; len(drift) != n || n > 0 && drift[0].Action != spec.ActionDefer {
			t.Fatalf("ignoreMissing %v: drift %+v", ignore, drift)
		}
	}
}

// Divingbell died at the first missing path: later ones and all reverts were skipped.
func TestMissingStopsNoOther(t *testing.T) {
	root := t.TempDir()
	files(t, root, map[string]uint32{"gone": 0o600, "later": 0o600})
	j := itemtest.Journal(t, t.TempDir())
	run(t, j, &spec.Perm{Paths: []spec.PermPath{{Path: root + "/gone", Mode: "0644"}}})
	want := &spec.Perm{Paths: []spec.PermPath{{Path: root + "/none", Mode: "0600"}, {Path: root + "/later", Mode: "0640"}}}
	run(t, j, want)
	if got := mode(t, root+"/later"); got != 0o640 {
		t.Errorf("the later path has mode %04o", got)
	}
	for _, e := range j.Entries(Name) {
		if e.Key == root+"/gone" {
			if err := New(want, "", j, t.Logf).Restore(t.Context(), []item.Entry{e}); err != nil {
				t.Error(err)
			}
		}
	}
	if got := mode(t, root+"/gone"); got != 0o600 {
		t.Errorf("what left the config has mode %04o", got)
	}
}

// A, then B, then A again is applied each time, whatever the policy.
func TestNeverIsPerRule(t *testing.T) {
	root := t.TempDir()
	files(t, root, map[string]uint32{"f": 0o600})
	j := itemtest.Journal(t, t.TempDir())
	for _, m := range []string{"0640", "0644", "0640"} {
		want := &spec.Perm{Rerun: "never", Paths: []spec.PermPath{{Path: root + "/f", Mode: m}}}
		run(t, j, want)
		if got := fmt.Sprintf("%04o", mode(t, root+"/f")); got != m {
			t.Fatalf("mode %s, want %s", got, m)
		}
		if err := os.Chmod(root+"/f", 0o666); err != nil {
			t.Fatal(err)
		}
		drift, err := New(want, "", j, t.Logf).Check(t.Context())
		if err != nil || len(drift) > 0 {
			t.Fatalf("never: drift %+v, %v after it was set once", drift, err)
		}
	}
	if err := New(nil, "", j, t.Logf).Restore(t.Context(), j.Entries(Name)); err != nil {
		t.Fatal(err)
	}
	if got := mode(t, root+"/f"); got != 0o600 {
		t.Fatalf("mode %04o, want the first original 0600", got)
	}
}

func TestScope(t *testing.T) {
	root := t.TempDir()
	files(t, root, map[string]uint32{"f": 0o600})
	want := &spec.Perm{Paths: []spec.PermPath{{Path: root + "/f", Mode: "0640"}}}
	for state, scope := range map[string]item.Scope{root: item.Disk, "/proc": item.Root, "": item.Root} {
		j := itemtest.Journal(t, t.TempDir())
		it := New(want, state, j, t.Logf)
		drift, err := it.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := it.Apply(t.Context(), drift); err != nil {
			t.Fatal(err)
		}
		entries := j.Entries(Name)
		if len(entries) != 1 || entries[0].Scope != scope {
			t.Fatalf("state %q: entries %+v, want scope %s", state, entries, scope)
		}
		if err := it.Restore(t.Context(), entries); err != nil {
			t.Fatal(err)
		}
	}
}

func TestNamesAreResolved(t *testing.T) {
	r, err := new(Item).parseRule(spec.PermPath{Path: "/x", Owner: "root", Group: "root"})
	if err != nil || r.uid != 0 || r.gid != 0 {
		t.Fatalf("rule %+v, %v", r, err)
	}
	if _, err := new(Item).parseRule(spec.PermPath{Path: "/x", Owner: "no-such-user"}); err == nil || !strings.Contains(err.Error(), `passwd has no "no-such-user"`) {
		t.Fatalf("error %v", err)
	}
}

// TestTheDisksOriginalsAreOfTheDisk: an attacker who had the disk in hand could write an
// original for any file of the system beside it.
func TestTheDisksOriginalsAreOfTheDisk(t *testing.T) {
	require.Root(t)
	disk := t.TempDir() // a file system of its own, wherever TMPDIR is
	if err := unix.Mount("perm", disk, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	system := t.TempDir()
	for dir, want := range map[string]uint32{disk: 0o666, system: 0o640} {
		files(t, dir, map[string]uint32{"shadow": 0o640})
		j := itemtest.Journal(t, t.TempDir())
		e := item.Entry{Item: Name, Key: filepath.Join(dir, "shadow"), Prior: item.Raw(attr{Mode: 0o666}), Applied: item.Raw(applied{Attr: attr{Mode: 0o640}}), Scope: item.Disk}
		if err := j.Record(e); err != nil {
			t.Fatal(err)
		}
		if err := New(nil, disk, j, t.Logf).Restore(t.Context(), j.Entries(Name)); err != nil {
			t.Error(err)
		}
		if got := mode(t, e.Key); got != want {
			t.Errorf("%s has mode %04o, want %04o", e.Key, got, want)
		}
	}
}

// A node's root is an overlay: the first change copies a file up, and it may have
// another inode from then on. It is the same file all the same.
func TestConformanceOnOverlay(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		base := t.TempDir()
		for _, dir := range []string{"lower", "upper", "root"} {
			if err := os.Mkdir(base+"/"+dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		mount := func(target, fstype, options string) {
			if err := unix.Mount(fstype, target, fstype, 0, options); err != nil {
				require.Missing(t, "overlay", fmt.Sprintf("mount %s: %v", fstype, err))
			}
			t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) }) // a lazy unmount: the mount is this test's alone
		}
		mount(base+"/lower", "tmpfs", "")
		files(t, base+"/lower", map[string]uint32{"a": 0o644, "tool": 0o4755})
		mount(base+"/upper", "tmpfs", "")
		for _, dir := range []string{"up", "work"} {
			if err := os.Mkdir(base+"/upper/"+dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		root := base + "/root"
		mount(root, "overlay", "lowerdir="+base+"/lower,upperdir="+base+"/upper/up,workdir="+base+"/upper/work")
		want := &spec.Perm{Paths: []spec.PermPath{{Path: root + "/a", Mode: "0600"}, {Path: root + "/tool", Mode: "4711"}, {Path: root, Mode: "0700"}}}
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return New(want, "", j, t.Logf) },
			Empty:    func(j item.Journal) item.Item { return New(nil, "", j, t.Logf) },
			Snapshot: func() string { return snapshot(t, root) },
		}
	})
}
