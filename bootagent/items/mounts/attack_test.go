// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/itemtest"
)

// That the check of links stops these is proven in package safepath.
func TestLocalUsers(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for _, row := range attack.LocalUsers(t, Name) {
		t.Run(row.Name, func(t *testing.T) {
			dir := row.Stage(t)
			var want []spec.Mount
			for _, r := range row.Rules {
				target := filepath.Join(dir, r.Path)
				want = append(want, spec.Mount{ID: "m", Device: "tmpfs", Type: "tmpfs", Target: target,
					Options: []string{fmt.Sprintf("uid=%d", attack.Nobody), "mode=0755"}})
				t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) }) // it may be refused
			}
			j := &itemtest.Interrupted{Journal: itemtest.Journal(t, t.TempDir()), Once: func() { attack.AsUser(t, dir, row.Between) }}
			it := New(want, "/proc", "/dev", j)
			drift, err := it.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("drift %+v\napply: %v", drift, it.Apply(t.Context(), drift))
			if gained := row.Gained(dir); gained != (row.Check == "") {
				t.Errorf("the user gained: %v", gained)
			}
		})
	}
}

// A user who moves away what was made for him, and leads its name elsewhere, does
// not choose what the restore removes.
func TestUnmakeFollowsNoLinkOfAUser(t *testing.T) {
	row := attack.LocalUser{
		Setup: "install -d etc/y; install -d -o $U home home/x home/x/y",
		User:  "mv home/x home/w; ln -s ../etc home/x",
		Gain:  "! test -e etc/y",
	}
	dir := row.Stage(t)
	if err := unmake(prior{Target: dir + "/home/x/y", Made: dir + "/home/x"}); err != nil {
		t.Fatal(err)
	}
	if row.Gained(dir) {
		t.Error("a directory of the system was removed")
	}
	if _, err := os.Lstat(dir + "/home/x"); err != nil {
		t.Error(err)
	}
}

// Options are changed of the mount that was looked at: a user with a mount namespace of his
// own can bring another one to its name, and would be rid of nosuid there.
func TestChangesTheMountThatWasLookedAt(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	dir := t.TempDir()
	defer func() { _ = errors.Join(unix.Unmount(dir, unix.MNT_DETACH), unix.Unmount(dir, unix.MNT_DETACH)) }() // the namespace is the test's alone
	tmpfs := func() error { return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID, "") }
	if err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""), tmpfs()); err != nil {
		t.Fatal(err)
	}
	top := func() mounted {
		t.Helper()
		all, err := readTable("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		m, there := all.at(dir)
		if !there {
			t.Fatal("nothing is mounted")
		}
		return m
	}
	looked := top()
	if err := change(looked, "", "", unix.MS_REMOUNT|unix.MS_BIND, ""); err != nil || slices.Contains(top().options, "nosuid") {
		t.Fatalf("the one that is there: %v, %v", err, top().options)
	}
	if err := tmpfs(); err != nil {
		t.Fatal(err)
	}
	if err := change(looked, "", "", unix.MS_REMOUNT|unix.MS_BIND, ""); !errors.Is(err, errMoved) || !slices.Contains(top().options, "nosuid") {
		t.Errorf("another one: %v, %v", err, top().options)
	}
}
