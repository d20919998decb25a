// SPDX-License-Identifier: Apache-2.0

package tunable

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// sysfsFake is a directory with a sys and a proc in it.
func sysfsFake(t *testing.T, files map[string]string) (sys, proc string) {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"sys", "proc"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, value := range files {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(root, "sys"), filepath.Join(root, "proc")
}

func sysfsSnapshot(t *testing.T, dirs ...string) string {
	t.Helper()
	var out strings.Builder
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return err
			}
			data, err := os.ReadFile(path)
			fmt.Fprintf(&out, "%s=%q\n", path, data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out.String()
}

// No user is at home where it acts: /sys and /proc/irq are the kernel's.
func TestSysfsConformance(t *testing.T) {
	want := []spec.Sysfs{
		{Path: "/proc/irq/24/smp_affinity_list", Value: "0-1"},
		{Path: "/sys/block/vda/queue/scheduler", Value: "none"},
		{Path: "/sys/class/net/eth0/queues/rx-0/rps_cpus", Value: "ff"},
		{Path: "/sys/kernel/mm/ksm/absent", Value: "1", Optional: true},
	}
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		sys, proc := sysfsFake(t, map[string]string{
			"proc/irq/24/smp_affinity_list":           "1",
			"sys/block/vda/queue/scheduler":           "mq-deadline",
			"sys/block/vda/queue/nr_requests":         "64",
			"sys/class/net/eth0/queues/rx-0/rps_cpus": "00000000,00000000",
		})
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return NewSysfs(want, sys, proc, j) },
			Empty:    func(j item.Journal) item.Item { return NewSysfs(nil, sys, proc, j) },
			Snapshot: func() string { return sysfsSnapshot(t, sys, proc) },
		}
	})
}

func TestSelected(t *testing.T) {
	for text, want := range map[string]string{
		"always [madvise] never": "madvise", "[none] mq-deadline": "none", "[none]": "none", "": "",
		"[a] [b]": "[a] [b]", "x[1] y": "x[1] y", "a\n[b]": "a\n[b]", "performance": "performance",
	} {
		if got := selected(text); got != want {
			t.Errorf("selected(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestSysfsSame(t *testing.T) {
	for _, c := range []struct {
		key, a, b string
		want      bool
	}{
		{"/sys/class/net/a/queues/rx-0/rps_cpus", "00000000,000000ff", "FF", true},
		{"/sys/class/net/a/queues/rx-0/rps_cpus", "00000000,00000000", "0", true},
		{"/proc/irq/default_smp_affinity", "10", "1", false},
		{"/proc/irq/3/smp_affinity_list", "0,1,2", "0-2", true},
		{"/sys/class/net/a/mtu", "1500", "0x5dc", true},
	} {
		if got := sameAttribute(c.key, c.a, c.b); got != c.want {
			t.Errorf("%s: %q and %q: %v", c.key, c.a, c.b, got)
		}
	}
}

// TestLinks: a link is followed to where a key may lie, and nowhere else.
func TestLinks(t *testing.T) {
	sys, proc := sysfsFake(t, map[string]string{
		"sys/devices/pci0/net/eth0/mtu": "1500", "sys/module/x/parameters/y": "1", "outside": "1", "sys/fs/cgroup/cpu.max": "1",
	})
	for name, to := range map[string]string{
		"class/net/eth0": "../../devices/pci0/net/eth0", "class/net/module": "../../module/x/parameters",
		"class/net/away": "../../..", "class/net/root": "/", "class/net/cgroup": "../../fs/cgroup",
	} {
		name = filepath.Join(sys, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{
		"/sys/class/net/eth0/mtu": spec.ActionChange, "/sys/class/net/module/y": spec.ActionRefuse, "/sys/class/net/away/outside": spec.ActionRefuse,
		"/sys/class/net/root/etc/hostname": spec.ActionRefuse, "/sys/class/net/cgroup/cpu.max": spec.ActionRefuse,
		"/sys/class/net/none/mtu": spec.ActionDefer, "/sys/class/net/eth0": spec.ActionRefuse, "/sys/module/x/parameters/y": spec.ActionRefuse,
	} {
		j := itemtest.Journal(t, t.TempDir())
		it := NewSysfs([]spec.Sysfs{{Path: path, Value: "9000"}}, sys, proc, j)
		drift, err := it.Check(t.Context())
		if err != nil || len(drift) != 1 || drift[0].Action != want {
			t.Errorf("%s: %+v, %v, want %s", path, drift, err, want)
		}
		if (sysfsTree{sys, proc}).Write(path, "9000") == nil && want != spec.ActionChange {
			t.Errorf("%s is written", path)
		}
	}
	for _, name := range []string{"sys/module/x/parameters/y", "outside", "sys/fs/cgroup/cpu.max"} {
		if data, err := os.ReadFile(filepath.Join(filepath.Dir(sys), name)); err != nil || string(data) != "1\n" {
			t.Errorf("%s holds %q, %v", name, data, err)
		}
	}
}

// kernel mounts the /sys of a network namespace with a device of its own.
func kernel(t *testing.T) string {
	t.Helper()
	sys := t.TempDir()
	if err := unix.Mount("sysfs", sys, "sysfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(sys, unix.MNT_DETACH) }) // the namespace ends with the test
	ip(t, "link", "add", "cs0", "type", "veth", "peer", "name", "cs1")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "cs0").Run() })
	return sys
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s", args, err, out)
	}
}

// The real kernel: the attributes of a device, by the spelling of a link.
func TestSysfsKernel(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	want := []spec.Sysfs{
		{Path: "/sys/class/net/cs0/gro_flush_timeout", Value: "20000"},
		{Path: "/sys/class/net/cs0/queues/rx-0/rps_cpus", Value: "1"},
		{Path: "/sys/class/net/cs0/tx_queue_len", Value: "0x100"},
	}
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		sys := kernel(t)
		return itemtest.World{
			Wanted: func(j item.Journal) item.Item { return NewSysfs(want, sys, "/proc", j) },
			Empty:  func(j item.Journal) item.Item { return NewSysfs(nil, sys, "/proc", j) },
			Snapshot: func() string {
				var out strings.Builder
				for _, name := range []string{"gro_flush_timeout", "queues/rx-0/rps_cpus", "tx_queue_len", "mtu"} {
					data, err := os.ReadFile(filepath.Join(sys, "class/net/cs0", name))
					if err != nil {
						t.Fatal(err)
					}
					fmt.Fprintf(&out, "%s=%q\n", name, data)
				}
				return out.String()
			},
		}
	})
}

// A device that was removed and made again is another one: it gets no value of
// the old one.
func TestAnotherDeviceOfTheName(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	sys := kernel(t)
	j := itemtest.Journal(t, t.TempDir())
	it := NewSysfs([]spec.Sysfs{{Path: "/sys/class/net/cs0/tx_queue_len", Value: "123"}}, sys, "/proc", j)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	ip(t, "link", "del", "cs0")
	ip(t, "link", "add", "cs0", "type", "veth", "peer", "name", "cs1")
	ip(t, "link", "set", "cs0", "txqueuelen", "77")
	if err := NewSysfs(nil, sys, "/proc", j).Restore(t.Context(), j.Entries(SysfsName)); err != nil {
		t.Fatal(err)
	}
	now, err := sysfsTree{sys, "/proc"}.Read("/sys/class/net/cs0/tx_queue_len")
	if err != nil || now != "77" || len(j.Entries(SysfsName)) > 0 {
		t.Errorf("the new device has %q, %v; entries %+v", now, err, j.Entries(SysfsName))
	}
}

// A value that the kernel refuses is said, and leaves what was there.
func TestRefusedByTheKernel(t *testing.T) {
	if !itemtest.InNamespaces(t, "ip") {
		return
	}
	sys := kernel(t)
	j := itemtest.Journal(t, t.TempDir())
	it := NewSysfs([]spec.Sysfs{{Path: "/sys/class/net/cs0/tx_queue_len", Value: "many"}, {Path: "/sys/class/net/cs0/address", Value: "x"}}, sys, "/proc", j)
	drift, err := it.Check(t.Context())
	if err != nil || len(drift) != 2 || drift[0].Action != spec.ActionRefuse {
		t.Fatalf("drift %+v, %v: an attribute that is not writable is refused", drift, err)
	}
	err = it.Apply(t.Context(), drift)
	if err == nil || !strings.Contains(err.Error(), `write sysfs "/sys/class/net/cs0/tx_queue_len" to "many": invalid argument`) || len(j.Entries(SysfsName)) > 0 {
		t.Errorf("%v; entries %+v", err, j.Entries(SysfsName))
	}
}

// What is read-only, gone since it was set, or not there yet is said, and one of them
// does not keep the others from being set or put back.
func TestReadOnlyGoneAndMissing(t *testing.T) {
	sys := t.TempDir()
	for name, mode := range map[string]os.FileMode{"fixed": 0o444, "goes": 0o644, "stays": 0o644} {
		at := filepath.Join(sys, "devices/x", name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte("1\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	j := itemtest.Journal(t, t.TempDir())
	it := NewSysfs([]spec.Sysfs{{Path: "/sys/devices/x/fixed", Value: "2"}, {Path: "/sys/devices/x/goes", Value: "2"}, {Path: "/sys/devices/x/later", Value: "2"}, {Path: "/sys/devices/x/stays", Value: "2"}}, sys, "/proc", j)
	actions := func() string {
		t.Helper()
		drift, err := it.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for _, d := range drift {
			all = append(all, filepath.Base(d.Key)+" "+d.Action)
		}
		return strings.Join(all, ", ")
	}
	if got := actions(); got != "fixed refuse, goes change, later defer, stays change" {
		t.Errorf("before: %s", got)
	}
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(sys, "devices/x/goes")); err != nil {
		t.Fatal(err)
	}
	if got := actions(); got != "fixed refuse, goes defer, later defer" {
		t.Errorf("after: %s", got)
	}
	if err := NewSysfs(nil, sys, "/proc", j).Restore(t.Context(), j.Entries(SysfsName)); err != nil {
		t.Fatal(err)
	}
	if now, err := os.ReadFile(filepath.Join(sys, "devices/x/stays")); err != nil || strings.TrimSpace(string(now)) != "1" || len(j.Entries(SysfsName)) > 0 {
		t.Errorf("after restore: %q, %v, %+v", now, err, j.Entries(SysfsName))
	}
}
