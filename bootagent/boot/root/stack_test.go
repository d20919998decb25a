// SPDX-License-Identifier: Apache-2.0

package root

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/record"
	"github.com/caisson-os/caisson/bootagent/record/state"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// newNext is a root that can be made, of one image, in a mount namespace of the test's
// own thread.
func newNext(t *testing.T) *Next {
	t.Helper()
	require.Root(t)
	require.Tool(t, "mksquashfs")
	runtime.LockOSThread() // and never unlocked: the thread and its namespace end with the test
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	t.Cleanup(func() { // whatever a failed test left
		if err := (&Next{under: dir}).Clear(); err != nil {
			t.Error(err)
		}
	})
	tree := filepath.Join(dir, "tree")
	for _, name := range []string{"usr/lib/systemd/", "usr/lib/os-release", "etc/", "var/lib/systemd/", "home/admin/.profile"} {
		path := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
		} else if err := os.WriteFile(path, []byte("ID=debian\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(dir, "base")
	if text, err := exec.Command("mksquashfs", tree, out, "-quiet", "-no-progress").CombinedOutput(); err != nil {
		t.Fatalf("mksquashfs: %v\n%s", err, text)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(data))
	folder, err := state.Open(filepath.Join(dir, paths.State))
	if err != nil {
		t.Fatal(err)
	}
	store, err := layers.OpenStore(folder.Path("store"))
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Put(digest, data); err != nil {
		t.Fatal(err)
	}
	layer := &spec.Layer{Version: "2", Images: []spec.Image{{Name: "base", MediaType: "application/vnd.caisson.image.v1.squashfs", Blob: spec.Blob{Digest: digest, Size: int64(len(data))}}}}
	return &Next{Pair: Pair{Generation: state.Generation{Generation: 2, Overlay: "sha256:o", Layer: "sha256:l"}, Layer: layer,
		Overlay: &spec.Overlay{Core: spec.Core{Fleet: "metal-a", Node: "superhost", Persist: []string{"/home"}}}},
		Boot: &record.Boot{Mode: spec.ModeNetboot, RootID: "before", Disk: "/dev/vda1", SyncDetail: "waits", Watchdog: 60,
			Lease: &record.Lease{Interface: "eth0", MAC: "52:54:00:00:00:01"}, Live: record.Live{Counts: record.Counts{Fetches: map[string]uint64{"ok": 3}}}},
		State: folder, Store: store, Unproven: true, Say: t.Logf, under: dir}
}

// mounts returns where something is mounted below the test's directory.
func (n *Next) mounts(t *testing.T) (at []string) {
	t.Helper()
	data, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if name, ok := strings.CutPrefix(strings.Fields(line)[4], n.under); ok {
			at = append(at, name)
		}
	}
	return at
}

func TestStack(t *testing.T) {
	n := newNext(t)
	for range 2 { // one that was made and not entered is made again
		if err := n.Stack(); err != nil {
			t.Fatal(err)
		}
	}
	at := n.path(paths.NextRoot)
	if left := strings.Join(n.mounts(t), "\n"); strings.Contains(left, paths.RunNext) {
		t.Errorf("the parts are mounted beside it:\n%s", left)
	}
	for name, want := range map[string]string{"/etc/hostname": "superhost\n", "/usr/lib/os-release": "ID=debian\n", "/home/admin/.profile": "ID=debian\n",
		"/etc/systemd/system.conf.d/60-caisson-supervise.conf": "[Manager]\nCrashReboot=yes\nRuntimeWatchdogSec=60\n", "/etc/caisson/upper/upper/etc/hostname": "superhost\n"} {
		if got, err := os.ReadFile(at + name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if _, err := os.Stat(at + "/etc/systemd/system/caisson-deadline.timer"); err != nil {
		t.Errorf("nothing ends a root that does not prove itself: %v", err)
	}
	if err := os.WriteFile(at+"/home/admin/new", nil, 0o600); err != nil {
		t.Error(err)
	} else if _, err := os.Stat(n.State.Path("persist/home/admin/new")); err != nil {
		t.Errorf("a persisted directory is not on the disk: %v", err)
	}
	if _, err := os.Stat(at + paths.State + "/persist"); err != nil {
		t.Errorf("the state is not where the agent looks for it: %v", err)
	}

	// The record of the root that runs is the other one until this one is entered.
	if err := record.SaveBoot(n.path(paths.RunBoot), n.Boot); err != nil {
		t.Fatal(err)
	}
	if b, err := record.Load(n.under); err != nil || b.RootID != "before" {
		t.Errorf("before: %+v, %v", b, err)
	}
	if err := os.MkdirAll(filepath.Dir(at+paths.RunBoot), 0o755); err != nil { // as systemd brings /run along
		t.Fatal(err)
	}
	if err := record.SaveBoot(at+paths.RunBoot, n.Boot); err != nil {
		t.Fatal(err)
	}
	b, err := record.Load(at)
	if err != nil || b.RootID == "before" || b.Generation.Generation != 2 || b.Layer.Version != "2" || b.Sync != spec.SyncCurrent || b.Node != "superhost" ||
		b.Lease == nil || b.Live.Counts.Fetches["ok"] != 3 || b.Disk != "/dev/vda1" || b.Watchdog != 60 || b.Upper != paths.RootUpper {
		t.Fatalf("entered: %+v, %v", b, err)
	}
	b.Live.Asked = 7
	if err := record.SaveBoot(at+paths.RunBoot, b); err != nil {
		t.Fatal(err)
	}
	if b, err = record.Load(at); err != nil || b.Live.Asked != 7 {
		t.Errorf("what the new root has noted: %+v, %v", b, err)
	}
	if err := n.Clear(); err != nil {
		t.Fatal(err)
	}
	if left := n.mounts(t); left != nil {
		t.Errorf("mounts are left: %q", left)
	}
}

// A node without a state disk is the same in each of its roots, which have the images of
// memory in common.
func TestStackInMemory(t *testing.T) {
	n := newNext(t)
	n.Boot.Disk, n.UUID, n.Boot.Live = "", "4c4c4544-0000-2010-8020-80c04f202020", record.Live{Had: "what it had", Began: "what it began with"}
	var ids []string
	for range 2 {
		if err := n.Stack(); err != nil {
			t.Fatal(err)
		}
		at := n.path(paths.NextRoot)
		id, err := os.ReadFile(at + "/etc/machine-id")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, string(id))
		if b, err := record.LoadBoot(at + paths.RootBoot); err != nil || b.Disk != "" || b.Live.Had != "what it had" || b.Live.Began != "what it began with" || b.Images.WhenRead != nil {
			t.Errorf("its record: %+v, %v", b, err)
		}
		if _, err := os.Stat(at + "/etc/systemd/system/caisson-deadline.timer"); err != nil {
			t.Errorf("nothing ends a root that does not prove itself: %v", err)
		}
	}
	if ids[0] != ids[1] || ids[0] == "" {
		t.Errorf("machine ids %q", ids)
	}
	if _, err := os.Stat(n.State.Path("identity/machine-id")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("memory says who the node is: %v", err)
	}
	if _, err := os.Stat(n.State.Path("persist/home")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a path is persisted in memory: %v", err)
	}
	if list, err := os.ReadDir(filepath.Dir(n.Store.Path(n.Pair.Layer.Images[0].Digest))); err != nil || len(list) != 1 {
		t.Errorf("images in memory: %v, %v", list, err)
	}
}

// A root that cannot be made leaves nothing behind, wherever it failed.
func TestStackThatFails(t *testing.T) {
	for name, harm := range map[string]func(n *Next){
		"an image":     func(n *Next) { n.Pair.Layer.Images = append(n.Pair.Layer.Images, spec.Image{MediaType: "x"}) },
		"the handover": func(n *Next) { n.State = state.View("/nothing/here") },
	} {
		t.Run(name, func(t *testing.T) {
			n := newNext(t)
			harm(n)
			if err := n.Stack(); err == nil {
				t.Error("it was made")
			}
			if left := n.mounts(t); left != nil {
				t.Errorf("mounts are left: %q", left)
			}
		})
	}
}

func TestClass(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*record.Boot, *Pair)
		class  string
	}{
		"another package": {func(*record.Boot, *Pair) {}, spec.ClassSoftReboot},
		"and a parameter": {func(_ *record.Boot, p *Pair) {
			p.Overlay.Items.Sysctl = []spec.Sysctl{{Key: "vm/swappiness", Value: "1"}}
		}, spec.ClassSoftReboot},
		"and kernel arguments": {func(_ *record.Boot, p *Pair) { p.Overlay.KernelArgs = []string{"quiet"} }, spec.ClassKexec},
		"and persisted paths":  {func(_ *record.Boot, p *Pair) { p.Overlay.Persist = []string{"/home"} }, spec.ClassReboot},
		"another kernel":       {func(_ *record.Boot, p *Pair) { p.Layer.Kernel.Release = "7" }, spec.ClassKexec},
		"no state disk":        {func(b *record.Boot, _ *Pair) { b.Disk = "" }, spec.ClassSoftReboot},
		"paths and arguments": {func(_ *record.Boot, p *Pair) {
			p.Overlay.Persist, p.Overlay.KernelArgs = []string{"/home"}, []string{"quiet"}
		}, spec.ClassKexec},
		"a build and arguments": {func(_ *record.Boot, p *Pair) {
			p.Layer.Kernel.Digest, p.Overlay.KernelArgs = "sha256:other", []string{"quiet"}
		}, spec.ClassKexec},
		"a disk that can be read": {func(b *record.Boot, _ *Pair) { b.ReadOnly = true }, spec.ClassReboot},
		"begun before":            {func(_ *record.Boot, p *Pair) { p.Generation.Attempts = 1 }, spec.ClassReboot},
	} {
		layer := spec.Layer{Arch: "amd64", Packages: []spec.InstalledPackage{{Name: "systemd", Version: "257"}}}
		b, p := &record.Boot{Disk: "/dev/vda1", Layer: layer}, Pair{Overlay: &spec.Overlay{Core: spec.Core{Layer: "b"}}, Layer: &layer}
		next := layer
		p.Layer = &next
		c.change(b, &p)
		if class, why := Class(b, &spec.Overlay{Core: spec.Core{Layer: "a"}}, p); class != c.class || why == "" {
			t.Errorf("%s: %s, %q; want %s", name, class, why, c.class)
		}
	}
}
