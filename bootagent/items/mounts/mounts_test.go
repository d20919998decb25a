// SPDX-License-Identifier: Apache-2.0

package mounts

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// snapshot is all mounts below root, and all that lies there.
func snapshot(t *testing.T, root string) string {
	t.Helper()
	all, err := readTable("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for _, m := range all {
		if rules.Within(m.point, root) {
			fmt.Fprintln(&out, strings.TrimPrefix(m.point, root), m.fstype, m.options, m.propagation, m.super)
		}
	}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			fmt.Fprintln(&out, strings.TrimPrefix(path, root), d.Type())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// place is a directory whose mounts go with the test.
func place(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	t.Cleanup(func() {
		all, _ := readTable("/proc/self/mountinfo")
		for n := len(all) - 1; n >= 0; n-- {
			if rules.Within(all[n].point, root) {
				_ = unix.Unmount(all[n].point, unix.MNT_DETACH) // a lazy unmount: the mount is this test's alone
			}
		}
	})
	return root
}

func mkdir(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func newItem(want []spec.Mount, j item.Journal) *Item { return New(want, "/proc", "/dev", j) }

func applied1(t *testing.T, j item.Journal, want ...spec.Mount) {
	t.Helper()
	it := newItem(want, j)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	if drift, err = it.Check(t.Context()); err != nil || len(drift) > 0 {
		t.Fatalf("after apply: %+v, %v", drift, err)
	}
}

func restored(t *testing.T, j item.Journal) {
	t.Helper()
	if err := newItem(nil, j).Restore(t.Context(), j.Entries(Name)); err != nil {
		t.Fatal(err)
	}
	if left := j.Entries(Name); len(left) > 0 {
		t.Fatalf("entries are left: %+v", left)
	}
}

func TestConformance(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	worlds := map[string]func(t *testing.T, root string) []spec.Mount{
		"tmpfs": func(t *testing.T, root string) []spec.Mount {
			return []spec.Mount{{ID: "a", Device: "tmpfs", Target: root + "/new/deep", Type: "tmpfs", Options: []string{"size=1m", "mode=0700", "nosuid", "nodev"}}}
		},
		"tmpfs below tmpfs": func(t *testing.T, root string) []spec.Mount {
			return []spec.Mount{
				{ID: "a", Device: "tmpfs", Target: root + "/a/b", Type: "tmpfs"},
				{ID: "z", Device: "tmpfs", Target: root + "/a", Type: "tmpfs"},
			}
		},
		"bind": func(t *testing.T, root string) []spec.Mount {
			mkdir(t, root+"/from", root+"/to")
			return []spec.Mount{{ID: "b", Device: root + "/from", Target: root + "/to", Type: "none", Options: []string{"bind", "ro", "noexec"}}}
		},
		"bind a file": func(t *testing.T, root string) []spec.Mount {
			if err := os.WriteFile(root+"/from", []byte("x"), 0o644); err != nil {
				t.Fatal(err)
			}
			return []spec.Mount{{ID: "b", Device: root + "/from", Target: root + "/new/to", Type: "none", Options: []string{"bind"}}}
		},
		"options of what another mounted": func(t *testing.T, root string) []spec.Mount {
			mkdir(t, root+"/had")
			if err := unix.Mount("tmpfs", root+"/had", "tmpfs", unix.MS_NOSUID, "size=2m"); err != nil {
				t.Fatal(err)
			}
			return []spec.Mount{{ID: "h", Device: "tmpfs", Target: root + "/had", Type: "tmpfs", Options: []string{"size=1m", "noexec", "nr_inodes=1k"}}}
		},
		"shadow": func(t *testing.T, root string) []spec.Mount {
			mkdir(t, root+"/full/inside")
			return []spec.Mount{{ID: "s", Device: "tmpfs", Target: root + "/full", Type: "tmpfs", Options: []string{shadow}}}
		},
	}
	for name, world := range worlds {
		t.Run(name, func(t *testing.T) {
			itemtest.Run(t, func(t *testing.T) itemtest.World {
				root := place(t)
				want := world(t, root)
				return itemtest.World{
					Wanted:   func(j item.Journal) item.Item { return newItem(want, j) },
					Empty:    func(j item.Journal) item.Item { return newItem(nil, j) },
					Snapshot: func() string { return snapshot(t, root) },
				}
			})
		})
	}
}

// A file system whose server is gone answers nobody. A look at it must not wait, and
// neither must taking it away.
func TestAServerThatDoesNotAnswer(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		require.Missing(t, "tools", "/dev/fuse: "+err.Error())
	}
	gone := sync.OnceFunc(func() { unix.Close(fuse) }) // which ends all that waits for it
	defer gone()
	root := place(t)
	mkdir(t, root+"/dead")
	w := spec.Mount{ID: "d", Device: "server", Target: root + "/dead", Type: "fuse.server", Options: []string{"nosuid"}}
	j := itemtest.Journal(t, t.TempDir())
	entry := item.Entry{Item: Name, Key: w.Target, Prior: item.Raw(prior{Target: w.Target}), Applied: item.Raw(applied{"server", w}), Scope: item.Root}
	if err := j.Record(entry); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("server", w.Target, "fuse.server", unix.MS_NOSUID, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse)); err != nil {
		t.Fatal(err)
	}
	within := func(what string, do func() error) {
		t.Helper()
		done := make(chan error, 1)
		go func() { done <- do() }()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(time.Minute):
			t.Errorf("%s waits for the server", what)
			gone()
			<-done // how it ended says nothing
		}
	}
	within("a look", func() error {
		drift, err := newItem([]spec.Mount{w}, j).Check(t.Context())
		if err == nil && len(drift) > 0 {
			err = fmt.Errorf("%+v", drift)
		}
		return err
	})
	within("an unmount", func() error { return newItem(nil, j).Restore(t.Context(), j.Entries(Name)) })
	if all, err := readTable("/proc/self/mountinfo"); err != nil {
		t.Error(err)
	} else if _, there := all.at(w.Target); there {
		t.Error("it is still mounted")
	}
}

// Every option of the table, against what the kernel shows for it.
func TestOptions(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	for _, tc := range []struct {
		option string
		shown  string // word of mountinfo that must be there; "!word": must not
	}{
		{"ro", "ro"}, {"rw", "rw"},
		{"nosuid", "nosuid"}, {"suid", "!nosuid"},
		{"nodev", "nodev"}, {"dev", "!nodev"},
		{"noexec", "noexec"}, {"exec", "!noexec"},
		{"nosymfollow", "nosymfollow"}, {"symfollow", "!nosymfollow"},
		{"nodiratime", "nodiratime"}, {"diratime", "!nodiratime"},
		{"noatime", "noatime"}, {"atime", "!noatime"},
		{"relatime", "relatime"}, {"strictatime", "!relatime"}, {"nostrictatime", "relatime"},
		{"sync", "sync"}, {"async", "!sync"},
		{"dirsync", "dirsync"},
		{"lazytime", "lazytime"}, {"nolazytime", "!lazytime"},
		{"private", "!shared"}, {"rprivate", "!shared"},
		{"shared", "shared"}, {"rshared", "shared"},
		{"slave", "!shared"}, {"rslave", "!shared"},
		{"unbindable", "unbindable"}, {"runbindable", "unbindable"},
		{"size=3m", "size=3072k"}, {"size=25%", "relatime"}, {"size=50%", "relatime"}, {"size=4097", "size=8k"}, {"mode=0750", "mode=750"}, {"uid=7", "uid=7"}, {"nr_inodes=2k", "nr_inodes=2048"},
		{"defaults", "relatime"}, {"nofail", "relatime"}, {"_netdev", "relatime"}, {"x-systemd.automount", "relatime"},
	} {
		t.Run(tc.option, func(t *testing.T) {
			root := place(t)
			target := root + "/m"
			for _, how := range []string{"mount", "remount"} {
				j := itemtest.Journal(t, t.TempDir())
				if how == "remount" {
					if key, _, _ := strings.Cut(tc.option, "="); key == "mode" || key == "uid" || key == "dirsync" {
						continue // the kernel does not remount these: TestRemountRefuses
					}
					applied1(t, j, spec.Mount{ID: "m", Device: "tmpfs", Target: target, Type: "tmpfs"})
				}
				applied1(t, j, spec.Mount{ID: "m", Device: "tmpfs", Target: target, Type: "tmpfs", Options: []string{tc.option}})
				all, err := readTable("/proc/self/mountinfo")
				if err != nil {
					t.Fatal(err)
				}
				m, ok := all.at(target)
				if !ok {
					t.Fatalf("%s: not mounted", how)
				}
				words := " " + strings.Join(append(append(m.options, m.super...), m.propagation...), " ")
				words = strings.ReplaceAll(words, ":", " ") + " "
				if word, absent := strings.CutPrefix(tc.shown, "!"); strings.Contains(words, " "+word+" ") == absent {
					t.Fatalf("%s: mountinfo shows %q, want %q", how, words, tc.shown)
				}
				restored(t, j)
			}
		})
	}
}

// What is mounted as wanted already is another's: it is not taken away later.
func TestForeignMountStays(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	root := place(t)
	mkdir(t, root+"/m")
	if err := unix.Mount("tmpfs", root+"/m", "tmpfs", unix.MS_NOSUID, "size=1m"); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, root)
	j := itemtest.Journal(t, t.TempDir())
	applied1(t, j, spec.Mount{ID: "m", Device: "tmpfs", Target: root + "/m", Type: "tmpfs", Options: []string{"nosuid", "size=1m"}})
	restored(t, j)
	if after := snapshot(t, root); after != before {
		t.Fatalf("after restore:\n%s", after)
	}
}

// Divingbell restarted the unit, which failed while a file was open.
func TestRemountWhileBusy(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	root := place(t)
	j := itemtest.Journal(t, t.TempDir())
	m := spec.Mount{ID: "m", Device: "tmpfs", Target: root + "/m", Type: "tmpfs", Options: []string{"size=1m"}}
	applied1(t, j, m)
	f, err := os.Create(root + "/m/open")
	if err != nil {
		t.Fatal(err)
	}
	m.Options = []string{"size=2m", "noexec"}
	applied1(t, j, m)
	if _, err := f.WriteString("still there"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	restored(t, j)
}

// A type with a helper is mounted by mount(8), which runs it.
func TestHelper(t *testing.T) {
	if !itemtest.InNamespaces(t, "mount") {
		return
	}
	root := place(t)
	mkdir(t, root+"/layer")
	if err := unix.Mount("tmpfs", root+"/layer", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	mkdir(t, root+"/layer/upper", root+"/layer/work")
	script := "#!/bin/sh\necho \"$@\" >>" + root + "/layer/calls\ncase \"$*\" in *server=gone*) sleep 300;; esac\nexec mount -i -t tmpfs \"$@\"\n"
	if err := os.WriteFile(root+"/layer/upper/mount.tmpfs", []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("overlay", "/usr/sbin", "overlay", 0, "lowerdir=/usr/sbin,upperdir="+root+"/layer/upper,workdir="+root+"/layer/work"); err != nil {
		require.Missing(t, "overlay", fmt.Sprintf("no overlay over /usr/sbin: %v", err))
	}
	t.Cleanup(func() { _ = unix.Unmount("/usr/sbin", unix.MNT_DETACH) }) // a lazy unmount: the mount is this test's alone
	j := itemtest.Journal(t, t.TempDir())
	m := spec.Mount{ID: "m", Device: "tmpfs", Target: root + "/m", Type: "tmpfs", Options: []string{"size=1m", "nofail"}}
	applied1(t, j, m)
	m.Options = []string{"size=2m", "noexec"}
	applied1(t, j, m)
	calls, err := os.ReadFile(root + "/layer/calls")
	if err != nil || strings.Count(string(calls), "\n") != 2 || !strings.Contains(string(calls), "size=1m") || !strings.Contains(string(calls), "remount") {
		t.Fatalf("the helper was called with %q, %v", calls, err)
	}
	restored(t, j)

	m.Options = []string{"server=gone"}
	it := newItem([]spec.Mount{m}, j)
	it.patience = time.Second
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := it.Apply(t.Context(), drift); err == nil || !strings.Contains(err.Error(), "no answer in 1s") || time.Since(begun) > time.Minute {
		t.Errorf("a helper that finds no server: %v after %v", err, time.Since(begun))
	}
	left := func() string {
		out, err := exec.Command("pgrep", "-f", root+".*server=gone").Output()
		if err != nil {
			return "" // there is none
		}
		return string(out)
	}
	for end := time.Now().Add(time.Minute); left() != "" && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // a signal takes a moment
	}
	if out := left(); out != "" {
		t.Errorf("what the helper started is left: %s", out)
	}
	restored(t, j)
}

func TestDeviceChanges(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	root := place(t)
	mkdir(t, root+"/one", root+"/two")
	before := snapshot(t, root)
	j := itemtest.Journal(t, t.TempDir())
	m := spec.Mount{ID: "m", Device: root + "/one", Target: root + "/m", Type: "none", Options: []string{"bind"}}
	applied1(t, j, m)
	m.Device = root + "/two"
	applied1(t, j, m)
	restored(t, j)
	if after := snapshot(t, root); after != before {
		t.Fatalf("after restore:\n%s", after)
	}
}

// A target below a symbolic link is mounted where the link points.
func TestTargetBelowLink(t *testing.T) {
	if !itemtest.InNamespaces(t) {
		return
	}
	root := place(t)
	mkdir(t, root+"/real")
	if err := os.Symlink("real", root+"/link"); err != nil {
		t.Fatal(err)
	}
	j := itemtest.Journal(t, t.TempDir())
	applied1(t, j, spec.Mount{ID: "m", Device: "tmpfs", Target: root + "/link/m", Type: "tmpfs"})
	if got := snapshot(t, root); !strings.Contains(got, "/real/m tmpfs") {
		t.Fatalf("mounts:\n%s", got)
	}
	restored(t, j)
}

func TestBlockDevice(t *testing.T) {
	if !itemtest.InNamespaces(t, "mkfs.ext4", "losetup") {
		return
	}
	root := place(t)
	image := t.TempDir() + "/image"
	if err := os.WriteFile(image, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-L", "data disk", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v %s", err, out)
	}
	out, err := exec.Command("losetup", "-f", "--show", image).Output()
	if err != nil {
		require.Missing(t, "loop", fmt.Sprintf("losetup: %v", err))
	}
	loop := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.Command("losetup", "-d", loop).Run() })
	dev := t.TempDir()
	mkdir(t, dev+"/disk/by-label")
	if err := os.Symlink(loop, dev+`/disk/by-label/data\x20disk`); err != nil {
		t.Fatal(err)
	}
	for _, device := range []string{loop, "LABEL=data disk", `LABEL="data disk"`} {
		j := itemtest.Journal(t, t.TempDir())
		m := spec.Mount{ID: "d", Device: device, Target: root + "/d", Type: "ext4", Options: []string{"noatime", "errors=remount-ro"}}
		for _, options := range [][]string{{"noatime", "errors=remount-ro"}, {"ro", "nosuid", "errors=continue"}} {
			m.Options = options
			it := New([]spec.Mount{m}, "/proc", dev, j)
			drift, err := it.Check(t.Context())
			if err != nil || len(drift) != 1 {
				t.Fatalf("%s: drift %+v, %v", device, drift, err)
			}
			if err := it.Apply(t.Context(), drift); err != nil {
				t.Fatal(err)
			}
			if drift, err = it.Check(t.Context()); err != nil || len(drift) > 0 {
				t.Fatalf("%s after apply: %+v, %v", device, drift, err)
			}
		}
		restored(t, j)
	}
}
