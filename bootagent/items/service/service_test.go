// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/layers"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// store has images in files, and none that it was told to lack.
type store struct {
	dir  string
	lack map[string]bool
}

func (s *store) Ready(image spec.Blob) error {
	if s.lack[image.Digest] {
		return errors.New("the registry does not answer")
	}
	return nil
}

func (s *store) Mount(image spec.Blob, at string) error {
	return layers.Image{Path: filepath.Join(s.dir, digest.Hex(image.Digest)), Type: "application/vnd.caisson.image.v1.squashfs"}.Mount(at)
}

// make builds an image of files.
func (s *store) make(t *testing.T, files map[string]string) spec.Blob {
	t.Helper()
	tree, out := t.TempDir(), filepath.Join(t.TempDir(), "image")
	write(t, tree, files)
	if err := os.Chmod(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	if said, err := exec.Command("mksquashfs", tree, out, "-quiet", "-no-progress", "-all-root").CombinedOutput(); err != nil {
		t.Fatalf("mksquashfs: %v\n%s", err, said)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	b := spec.Blob{Digest: digest.Of(data), Size: int64(len(data))}
	if err := os.WriteFile(filepath.Join(s.dir, digest.Hex(b.Digest)), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// manager is systemd as far as the item asks it: it keeps what it was asked.
type manager struct {
	asked  []string
	active bool
	broken bool
}

func (m *manager) State(context.Context, string) (string, time.Time, error) {
	if m.active {
		return "active", time.Time{}, nil
	}
	return "inactive", time.Time{}, nil
}

func (m *manager) Do(_ context.Context, job, unit string) error {
	m.asked = append(m.asked, job+" "+unit)
	if m.broken {
		return fmt.Errorf("%s %s: failed", job, unit)
	}
	m.active = true
	return nil
}

func (m *manager) Reload(context.Context) error {
	m.asked = append(m.asked, "daemon-reload")
	return nil
}

func (m *manager) took() string {
	out := strings.Join(m.asked, ", ")
	m.asked = nil
	return out
}

// host is a system with something at every kind of place.
type host struct {
	Places
	*store
	systemd *manager
	dir     string // of the journal
}

func newHost(t *testing.T) *host {
	t.Helper()
	require.Root(t)
	require.Tool(t, "mksquashfs")
	root := t.TempDir()
	h := &host{Places: Places{Root: root, Run: filepath.Join(root, "run/caisson/service")}, store: &store{dir: t.TempDir(), lack: map[string]bool{}}, systemd: &manager{}, dir: t.TempDir()}
	write(t, root, map[string]string{"etc/passwd": "root:x:0:0::/root:/bin/sh\nprometheus:x:104:112::/:/bin/false\n", "etc/default/prometheus": "ARGS=\n",
		"etc/bind/named.conf": "package's", "etc/bind/zones/old": "package's", "usr/lib/systemd/system/x.service": "[Service]\nExecStart=/bin/true\n"})
	for _, err := range []error{os.MkdirAll(filepath.Join(root, "run/caisson"), 0o755), os.Mkdir(filepath.Join(root, "etc/empty"), 0o750),
		os.Symlink("default/prometheus", filepath.Join(root, "etc/alias")), os.Lchown(filepath.Join(root, "etc/empty"), 7, 8), os.Chmod(filepath.Join(root, "etc/default/prometheus"), 0o640)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { detach(t, root) })
	return h
}

// detach unmounts all below a directory.
func detach(t *testing.T, root string) {
	t.Helper()
	for {
		data, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		last := ""
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 4 && strings.HasPrefix(f[4], root+"/") {
				last = f[4]
			}
		}
		if last == "" {
			return
		}
		if err := unix.Unmount(last, unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
	}
}

// snapshot is all of the system that the item may change, mounts included.
func (h *host) snapshot(t *testing.T) string {
	t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(h.Root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(name, &st); err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s %v %d:%d", strings.TrimPrefix(name, h.Root), info.Mode(), st.Uid, st.Gid)
		if isMounted(name) {
			out.WriteString(" mounted")
		}
		switch {
		case d.Type()&os.ModeSymlink != 0:
			to, err := os.Readlink(name)
			if err != nil {
				return err
			}
			out.WriteString(" -> " + strings.TrimPrefix(to, h.Root))
		case d.Type().IsRegular():
			data, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %q", data)
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func (h *host) item(t *testing.T, want ...spec.Service) (*Item, item.Journal) {
	j := itemtest.Journal(t, h.dir)
	return New(want, h.Places, h.store, h.systemd, j), j
}

// reconcile is one run, as package items makes it.
func (h *host) reconcile(t *testing.T, want ...spec.Service) ([]spec.Drift, error) {
	t.Helper()
	it, j := h.item(t, want...)
	check := func() []spec.Drift {
		drift, err := it.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return drift
	}
	drift := check()
	var left []item.Entry
	for _, e := range j.Entries(Name) {
		if slices.ContainsFunc(drift, func(d spec.Drift) bool { return d.Action == spec.ActionRemove && d.Key == e.Key }) {
			left = append(left, e)
		}
	}
	err := it.Restore(t.Context(), left)
	due := slices.DeleteFunc(check(), func(d spec.Drift) bool { return d.Action != spec.ActionAdd && d.Action != spec.ActionChange })
	err = errors.Join(err, it.Apply(t.Context(), due))
	return check(), err
}

func (h *host) settle(t *testing.T, want ...spec.Service) {
	t.Helper()
	if drift, err := h.reconcile(t, want...); err != nil || len(drift) > 0 {
		t.Fatalf("%+v, %v", drift, err)
	}
}

func (h *host) read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(h.Root, name))
	if err != nil {
		t.Error(err)
	}
	return string(data)
}

func tree(n string) map[string]string {
	return map[string]string{"etc/prometheus.yml": n, "etc/rules/a": "rules " + n, "default": "ARGS=" + n, "zones/example": "zone " + n, "x.conf": "[Service]\n# " + n + "\n"}
}

func (h *host) service(t *testing.T, n string) spec.Service {
	t.Helper()
	return spec.Service{Name: "prometheus", Unit: "prometheus.service", Commit: strings.Repeat(n, 40), Image: h.make(t, tree(n)), User: "prometheus", Action: spec.ServiceReloadOrRestart,
		Directories: []spec.ServiceDirectory{{From: "zones", To: "/etc/bind/zones"}, {From: "default", To: "/etc/default/prometheus", File: true}, {From: "etc/rules", To: "/etc/empty"}, {From: "etc", To: "/etc/new/deep/prometheus"}}}
}

func TestConformance(t *testing.T) {
	require.Root(t)
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		h := newHost(t)
		s := h.service(t, "1")
		link := spec.Service{Name: "x", Unit: "x.service", Commit: strings.Repeat("2", 40), Image: s.Image, Directories: []spec.ServiceDirectory{{From: "default", To: "/etc/alias", File: true}, {From: "x.conf", To: "/etc/systemd/system/x.service.d/git.conf", File: true}}}
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return New([]spec.Service{s, link}, h.Places, h.store, h.systemd, j) },
			Empty:    func(j item.Journal) item.Item { return New(nil, h.Places, h.store, h.systemd, j) },
			Snapshot: func() string { return h.snapshot(t) },
		}
	})
}

// TestSwitch goes from commit to commit and back, everywhere at once, tells the unit
// each time, and leaves nothing of it when the service goes.
func TestSwitch(t *testing.T) {
	h := newHost(t)
	before := h.snapshot(t)
	for _, n := range []string{"1", "2", "1"} {
		h.settle(t, h.service(t, n))
		for name, want := range map[string]string{"etc/bind/zones/example": "zone " + n, "etc/default/prometheus": "ARGS=" + n, "etc/empty/a": "rules " + n, "etc/new/deep/prometheus/prometheus.yml": n} {
			if got := h.read(t, name); got != want {
				t.Errorf("%s is %q, want %q", name, got, want)
			}
		}
		if err := Tidy(h.Places); err != nil {
			t.Error(err)
		}
		if list, err := os.ReadDir(filepath.Join(h.Run, "prometheus")); err != nil || len(list) != 2 {
			t.Errorf("%d entries, %v", len(list), err)
		}
	}
	if got := h.systemd.took(); got != "start prometheus.service, reload-or-restart prometheus.service, reload-or-restart prometheus.service" {
		t.Errorf("asked %s", got)
	}
	var st unix.Stat_t
	if err := unix.Stat(filepath.Join(h.Root, "etc/new/deep"), &st); err != nil || st.Uid != 104 || st.Gid != 112 {
		t.Errorf("the way belongs to %d:%d, %v", st.Uid, st.Gid, err)
	}
	h.settle(t)
	if got := h.snapshot(t); got != before {
		t.Errorf("left behind:\n%s\nbefore:\n%s", got, before)
	}
}

// TestOldMountStaysForThoseInIt while everyone else sees the new files.
func TestOldMountStaysForThoseInIt(t *testing.T) {
	h := newHost(t)
	h.settle(t, h.service(t, "1"))
	in, err := os.OpenRoot(filepath.Join(h.Root, "etc/bind/zones"))
	if err != nil {
		t.Fatal(err)
	}
	open, err := os.OpenRoot(filepath.Join(h.Root, "etc/empty"))
	if err != nil {
		t.Fatal(err)
	}
	h.settle(t, h.service(t, "2"))
	if data, err := in.ReadFile("example"); err != nil || string(data) != "zone 1" {
		t.Errorf("%q, %v", data, err)
	}
	if data, err := open.ReadFile("a"); err != nil || string(data) != "rules 1" {
		t.Errorf("%q, %v", data, err)
	}
	count := func() int {
		list, err := os.ReadDir(filepath.Join(h.Run, "prometheus"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	if err := Tidy(h.Places); err != nil || count() != 3 {
		t.Errorf("%d entries, %v", count(), err)
	}
	if err := errors.Join(in.Close(), open.Close()); err != nil {
		t.Fatal(err)
	}
	if err := Tidy(h.Places); err != nil || count() != 2 {
		t.Errorf("%d entries, %v", count(), err)
	}
}

// TestEditsDoNotLast: nobody changes the files, and what takes their place goes.
func TestEditsDoNotLast(t *testing.T) {
	h := newHost(t)
	s := h.service(t, "1")
	h.settle(t, s)
	h.systemd.took()
	for _, name := range []string{"etc/default/prometheus", "etc/empty/a", "etc/bind/zones/new", "etc/new/deep/prometheus/new"} {
		if err := os.WriteFile(filepath.Join(h.Root, name), []byte("edited"), 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: %v, want that it is read-only", name, err)
		}
	}
	name := filepath.Join(h.Root, "etc/default/prometheus")
	if err := errors.Join(os.Remove(name), os.WriteFile(name, []byte("edited"), 0o644)); err != nil {
		t.Fatal(err)
	}
	it, _ := h.item(t, s)
	if drift, err := it.Check(t.Context()); err != nil || len(drift) != 1 || drift[0].Action != spec.ActionChange || drift[0].From != "not at /etc/default/prometheus" {
		t.Errorf("%+v, %v", drift, err)
	}
	h.settle(t, s)
	if got := h.read(t, "etc/default/prometheus"); got != "ARGS=1" || h.systemd.took() != "reload-or-restart prometheus.service" {
		t.Errorf("it is %q", got)
	}
	// A whole directory in the place of a link: nobody sees it, and it is not lost.
	zones := filepath.Join(h.Root, "etc/new/deep/prometheus")
	if err := errors.Join(os.Remove(zones), os.Mkdir(zones, 0o755), os.WriteFile(filepath.Join(zones, "mine"), []byte("edited"), 0o644)); err != nil {
		t.Fatal(err)
	}
	h.settle(t, s)
	if _, err := os.Lstat(filepath.Join(zones, "mine")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was put in the place of a link: %v", err)
	}
	h.settle(t, h.service(t, "2"))
	if got := h.read(t, "etc/default/prometheus"); got != "ARGS=2" {
		t.Errorf("the next commit: %q", got)
	}
	h.settle(t)
	if got := h.read(t, "etc/default/prometheus"); got != "ARGS=\n" {
		t.Errorf("the original is %q", got)
	}
	if got := h.read(t, "etc/new/deep/prometheus/mine"); got != "edited" {
		t.Errorf("what was mounted over is %q", got)
	}
}

// TestErrorsClearByThemselves: an image that comes later, and a unit that failed once.
func TestErrorsClearByThemselves(t *testing.T) {
	h := newHost(t)
	one := h.service(t, "1")
	h.lack[one.Image.Digest] = true
	if drift, err := h.reconcile(t, one); err != nil || len(drift) != 1 || drift[0].Action != spec.ActionDefer || !strings.Contains(drift[0].Reason, "not fetched yet: the registry does not answer") {
		t.Errorf("%+v, %v", drift, err)
	}
	h.lack = map[string]bool{}
	h.settle(t, one)
	two := h.service(t, "2")
	h.lack[two.Image.Digest] = true
	if drift, _ := h.reconcile(t, two); len(drift) != 1 || h.read(t, "etc/empty/a") != "rules 1" {
		t.Errorf("%+v: the node has not what it had", drift)
	}
	h.lack = map[string]bool{}
	h.systemd.broken = true
	drift, err := h.reconcile(t, two)
	if err == nil || len(drift) != 1 || drift[0].From != "its unit has not read its files again" {
		t.Errorf("%+v, %v", drift, err)
	}
	h.systemd.broken = false
	h.systemd.took()
	h.settle(t, two)
	if got := h.systemd.took(); got != "reload-or-restart prometheus.service" {
		t.Errorf("asked %q", got)
	}
	h.settle(t, two)
	if got := h.systemd.took(); got != "" {
		t.Errorf("asked again: %s", got)
	}
}

// TestActions: what each of them does to a unit that runs, and to one that does not.
func TestActions(t *testing.T) {
	for action, want := range map[string][2]string{"": {"", ""}, spec.ServiceStart: {"start x.service", ""}, spec.ServiceReload: {"start x.service", "reload x.service"},
		spec.ServiceRestart: {"start x.service", "restart x.service"}, spec.ServiceReloadOrRestart: {"start x.service", "reload-or-restart x.service"}} {
		for n, running := range []bool{false, true} {
			h := newHost(t)
			h.systemd.active = running
			h.settle(t, spec.Service{Name: "x", Unit: "x.service", Commit: "1", Image: h.make(t, tree("1")), Action: action, Directories: []spec.ServiceDirectory{{From: "etc", To: "/srv/x"}}})
			if got := h.systemd.took(); got != want[n] {
				t.Errorf("%q, running %v: asked %q, want %q", action, running, got, want[n])
			}
		}
	}
}

// TestUnitFiles are read by systemd before the unit is told, also when they go.
func TestUnitFiles(t *testing.T) {
	h := newHost(t)
	h.systemd.active = true
	s := spec.Service{Name: "x", Unit: "x.service", Commit: "1", Image: h.make(t, tree("1")), Action: spec.ServiceRestart, Directories: []spec.ServiceDirectory{{From: "x.conf", To: "/etc/systemd/system/x.service.d/git.conf", File: true}}}
	h.settle(t, s)
	if got := h.systemd.took(); got != "daemon-reload, restart x.service" {
		t.Errorf("asked %q", got)
	}
	h.settle(t)
	if got := h.systemd.took(); got != "daemon-reload, restart x.service" {
		t.Errorf("asked %q when it left", got)
	}
}

// TestADirectoryLeaves while its service stays: the unit is told.
func TestADirectoryLeaves(t *testing.T) {
	h := newHost(t)
	s := h.service(t, "1")
	h.settle(t, s)
	h.systemd.took()
	s.Directories = s.Directories[1:]
	h.settle(t, s)
	if got := h.read(t, "etc/bind/zones/old"); got != "package's" || h.systemd.took() != "reload-or-restart prometheus.service" {
		t.Errorf("what was mounted over is %q", got)
	}
}

// TestAfterAReboot the same is there again, before the unit starts: below /run nothing is
// left, or after a soft-reboot files without mounts.
func TestAfterAReboot(t *testing.T) {
	h := newHost(t)
	s := h.service(t, "1")
	h.settle(t, s)
	if got := h.read(t, "etc/systemd/system/prometheus.service.d/60-caisson-service.conf"); got != "[Unit]\nAfter=caisson-agent.service\n" {
		t.Errorf("drop-in %q", got)
	}
	for _, soft := range []bool{false, true} {
		detach(t, h.Root)
		if !soft {
			if err := os.RemoveAll(h.Run); err != nil {
				t.Fatal(err)
			}
		}
		h.systemd.active = false
		h.settle(t, s)
		if got := h.read(t, "etc/bind/zones/example") + h.read(t, "etc/empty/a"); got != "zone 1rules 1" {
			t.Errorf("%q", got)
		}
	}
}

// TestRefused tries what cannot be done, and nothing of it is.
func TestRefused(t *testing.T) {
	h := newHost(t)
	if err := unix.Mkfifo(filepath.Join(h.Root, "etc/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, h.Root, map[string]string{"etc/large": strings.Repeat("x", maxOriginal+1)})
	if err := os.Mkdir(filepath.Join(h.Root, "etc/mounted"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", filepath.Join(h.Root, "etc/mounted"), "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	write(t, h.Root, map[string]string{"etc/mounted/x": "x"})
	image := h.make(t, tree("1"))
	for to, want := range map[string]string{"/etc/pipe": "neither a file", "/etc/large": "more than", "/etc/mounted": "something is mounted", "/etc/bind": "is to be a file", "/etc": "not one service's own"} {
		s := spec.Service{Name: "x", Unit: "x.service", Commit: "1", Image: image, Directories: []spec.ServiceDirectory{{From: "default", To: to, File: to != "/etc/mounted"}}}
		if drift, err := h.reconcile(t, s); err != nil || len(drift) != 1 || drift[0].Action != spec.ActionRefuse || !strings.Contains(drift[0].Reason, want) {
			t.Errorf("%s: %+v, %v", to, drift, err)
		}
	}
	s := h.service(t, "1")
	s.User = "nobody-here"
	if drift, err := h.reconcile(t, s); err != nil || len(drift) != 1 || drift[0].Reason != `passwd has no "nobody-here"` {
		t.Errorf("%+v, %v", drift, err)
	}
}

// TestEarlyUnitsDoNotWait: one that the agent starts after would be waited for in a circle.
func TestEarlyUnitsDoNotWait(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{"usr/lib/systemd/system/early.service": "[Unit]\nDefaultDependencies=no\nBefore=sysinit.target\n",
		"usr/lib/systemd/system/caisson-agent.service": "[Unit]\nAfter=network.target\n[Service]\n", "usr/lib/systemd/system/network.target": "[Unit]\n", "usr/lib/systemd/system/sysinit.target": "[Unit]\n",
		"usr/lib/systemd/system/nfs-mountd.service": "[Unit]\nDefaultDependencies=no\nAfter=network.target\n", "usr/lib/systemd/system/before.service": "[Unit]\nBefore=network.target foo.service\n",
		"usr/lib/systemd/system/late@.service": "[Service]\nExecStart=/bin/true\n"})
	var want []spec.Service
	for _, unit := range []string{"early.service", "before.service", "late@a.service", "none.service", "nfs-mountd.service", "kubelet.service"} {
		want = append(want, spec.Service{Name: unit, Unit: unit})
	}
	var got []string
	for _, f := range Files(want, root) {
		got = append(got, strings.TrimPrefix(f.Path, "/etc/systemd/system/"))
	}
	if fmt.Sprint(got) != "[late@a.service.d/60-caisson-service.conf none.service.d/60-caisson-service.conf nfs-mountd.service.d/60-caisson-service.conf]" {
		t.Errorf("%v", got)
	}
}

// What is at a place is of one directory, whatever its owner puts in the place of the one above.
func TestAPlaceIsOfOneDirectory(t *testing.T) {
	require.Root(t)
	root := t.TempDir()
	bare, full := filepath.Join(root, "home/a"), filepath.Join(root, "home/b")
	write(t, full, map[string]string{"x/file": "text"})
	if err := errors.Join(os.MkdirAll(bare+"/x", 0o755), os.Chmod(bare+"/x", 0o700), os.Chmod(full+"/x", 0o755),
		os.Chmod(filepath.Dir(root), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{filepath.Dir(bare), bare, full} {
		if err := os.Lchown(dir, attack.Nobody, attack.Nobody); err != nil {
			t.Fatal(err)
		}
	}
	i := &Item{places: Places{Root: root}}
	defer attack.Race(t, func(int) {
		_ = unix.Renameat2(unix.AT_FDCWD, bare, unix.AT_FDCWD, full, unix.RENAME_EXCHANGE) // it always can
	})()
	for range 2000 {
		p, err := i.readPlace(spec.ServiceDirectory{To: "/home/a/x"})
		if err != nil {
			t.Fatal(err)
		}
		if p.Kind != empty && p.Kind != directory || (p.Kind == directory) != (p.Mode == 0o755) {
			t.Fatalf("%s of mode %o", p, p.Mode)
		}
	}
}
