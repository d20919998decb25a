// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

func TestRefusals(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	root := place(t)
	mkdir(t, root+"/full/inside", root+"/busy", root+"/dir")
	if err := os.WriteFile(root+"/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", root+"/busy", "ramfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		m      spec.Mount
		action string
		reason string
	}{
		{"root", spec.Mount{Device: "tmpfs", Target: "/", Type: "tmpfs"}, spec.ActionRefuse, "hide the system"},
		{"relative", spec.Mount{Device: "tmpfs", Target: "a", Type: "tmpfs"}, spec.ActionRefuse, "absolute"},
		{"trailing slash", spec.Mount{Device: "tmpfs", Target: root + "/a/", Type: "tmpfs"}, spec.ActionRefuse, "clean"},
		{"full folder", spec.Mount{Device: "tmpfs", Target: root + "/full", Type: "tmpfs"}, spec.ActionRefuse, "would hide inside"},
		{"file", spec.Mount{Device: "tmpfs", Target: root + "/file", Type: "tmpfs"}, spec.ActionRefuse, "not a directory"},
		{"other mount", spec.Mount{Device: "tmpfs", Target: root + "/busy", Type: "tmpfs"}, spec.ActionRefuse, "something else"},
		{"noauto", spec.Mount{Device: "tmpfs", Target: root + "/a", Type: "tmpfs", Options: []string{"noauto"}}, spec.ActionRefuse, "noauto"},
		{"comma", spec.Mount{Device: "tmpfs", Target: root + "/a", Type: "tmpfs", Options: []string{"ro,suid"}}, spec.ActionRefuse, "not one mount option"},
		{"auto", spec.Mount{Device: "/dev/null", Target: root + "/a", Type: "auto"}, spec.ActionRefuse, "does not name"},
		{"bind type", spec.Mount{Device: root, Target: root + "/a", Type: "bind"}, spec.ActionRefuse, "is an option"},
		{"bind file on folder", spec.Mount{Device: root + "/file", Target: root + "/dir", Type: "none", Options: []string{"bind"}}, spec.ActionRefuse, "one is not"},
		{"missing label", spec.Mount{Device: "PARTLABEL=no such", Target: root + "/a", Type: "ext4"}, spec.ActionDefer, "not there yet"},
		{"missing device", spec.Mount{Device: "/dev/no-such", Target: root + "/a", Type: "ext4"}, spec.ActionDefer, "not there yet"},
		{"missing helper", spec.Mount{Device: "server.example:/x", Target: root + "/a", Type: "glusterfs"}, spec.ActionDefer, "mount.glusterfs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := snapshot(t, root)
			it := newItem([]spec.Mount{tc.m}, itemtest.Journal(t, t.TempDir()))
			drift, err := it.Check(t.Context())
			if err != nil || len(drift) != 1 || drift[0].Action != tc.action || !strings.Contains(drift[0].Reason, tc.reason) {
				t.Fatalf("drift %+v, %v; want %s because of %q", drift, err, tc.action, tc.reason)
			}
			if err := it.Apply(t.Context(), drift); err != nil {
				t.Fatal(err)
			}
			if after := snapshot(t, root); after != before {
				t.Fatalf("it acted all the same:\n%s", after)
			}
		})
	}
}

func TestFailedMountLeavesNothing(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	root := place(t)
	before := snapshot(t, root)
	j := itemtest.Journal(t, t.TempDir())
	it := newItem([]spec.Mount{{ID: "bad", Device: "tmpfs", Target: root + "/a/b", Type: "tmpfs", Options: []string{"nonsense=1"}}}, j)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err == nil || !strings.Contains(err.Error(), "bad") {
		t.Fatalf("apply: %v, want an error that names the mount", err)
	}
	if after := snapshot(t, root); after != before || len(j.Entries(Name)) > 0 {
		t.Fatalf("left behind: %s %+v", after, j.Entries(Name))
	}
}

func TestRemountRefuses(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	root := place(t)
	j := itemtest.Journal(t, t.TempDir())
	m := spec.Mount{ID: "m", Device: "tmpfs", Target: root + "/m", Type: "tmpfs", Options: []string{"mode=0700"}}
	applied1(t, j, m)
	m.Options = nil
	drift, err := newItem([]spec.Mount{m}, j).Check(t.Context())
	if err != nil || len(drift) != 1 || drift[0].Action != spec.ActionRefuse || !strings.Contains(drift[0].Reason, "mode=0700") {
		t.Fatalf("drift %+v, %v; want a refusal that names the option", drift, err)
	}
	m.Options = []string{"mode=0755"}
	it := newItem([]spec.Mount{m}, j)
	if drift, err = it.Check(t.Context()); err != nil || len(drift) != 1 {
		t.Fatalf("drift %+v, %v", drift, err)
	}
	if err := it.Apply(t.Context(), drift); err == nil || !strings.Contains(err.Error(), "mode=0755") {
		t.Fatalf("apply: %v, want that the kernel does not change it", err)
	}
	restored(t, j)
}

// A mount that moves keeps its files open for nobody: busy is an error that
// names who is in the way, and nothing is unmounted lazily.
func TestBusy(t *testing.T) {
	if !itemtest.InNamespaces(t, "sleep") {
		return
	}
	root := place(t)
	j := itemtest.Journal(t, t.TempDir())
	applied1(t, j, spec.Mount{ID: "m", Device: "tmpfs", Target: root + "/m", Type: "tmpfs"})
	sleeper := exec.Command("sleep", "600")
	sleeper.Dir = root + "/m"
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	err := newItem(nil, j).Restore(t.Context(), j.Entries(Name))
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%d (sleep)", sleeper.Process.Pid)) {
		t.Errorf("restore: %v, want busy and the process", err)
	}
	if len(j.Entries(Name)) != 1 {
		t.Error("the original was forgotten though the mount is still there")
	}
	_ = sleeper.Process.Kill()
	_ = sleeper.Wait()
	restored(t, j)
}

func TestOneTargetTwice(t *testing.T) {
	require.Root(t)
	root := t.TempDir()
	if err := os.Symlink(".", root+"/link"); err != nil {
		t.Fatal(err)
	}
	drift, err := newItem([]spec.Mount{
		{ID: "one", Device: "tmpfs", Target: root + "/m", Type: "tmpfs"},
		{ID: "two", Device: "tmpfs", Target: root + "/link/m", Type: "tmpfs"},
	}, itemtest.Journal(t, t.TempDir())).Check(t.Context())
	if err != nil || len(drift) != 2 || drift[0].Action == drift[1].Action || !strings.Contains(drift[0].Reason+drift[1].Reason, "one target") {
		t.Fatalf("drift %+v, %v; want the second refused", drift, err)
	}
}

// Mounts die with their root: entries of another root are not acted on.
func TestOtherRoot(t *testing.T) {
	dir := t.TempDir()
	j := itemtest.Journal(t, dir)
	if err := j.Record(item.Entry{Item: Name, Key: "/m", Prior: item.Raw(prior{Target: "/m"}), Scope: item.Root}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	scopes := itemtest.Scopes
	scopes.Root = "root-2"
	next, err := journal.Open(dir, scopes)
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close() // the test is over
	if drift, err := newItem(nil, next).Check(t.Context()); err != nil || len(drift) > 0 {
		t.Fatalf("drift %+v, %v", drift, err)
	}
}

// Status, logs and errors are read by more people than may know a password.
func TestSecretsAreNotShown(t *testing.T) {
	w := spec.Mount{ID: "m", Device: "//host/share", Type: "cifs", Target: "/m", Options: []string{"username=u", "Password=hunter2", "pass=hunter2"}}
	m := mounted{source: w.Device, fstype: w.Type, super: []string{"rw", "password=hunter2"}}
	_, badly := parseOptions([]string{"password=hunter2,x"})
	helper := (&Item{patience: time.Minute}).byHelper(t.Context(), w.Options, "-t", "no-such-type", w.Device, t.TempDir())
	for what, text := range map[string]string{"wanted": describe(w), "mounted": m.String(), "parse": badly.Error(), "helper": helper.Error()} {
		if strings.Contains(text, "hunter2") {
			t.Errorf("%s: %s", what, text)
		}
	}
}
