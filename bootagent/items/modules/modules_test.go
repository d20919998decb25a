// SPDX-License-Identifier: Apache-2.0

package modules

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

// world is a root with a kernel that has some modules, and a systemd that loads
// those that the kernel can load.
type world struct {
	t    *testing.T
	root string
	jobs []string
	fail error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	require.Root(t)
	w := &world{t: t, root: t.TempDir()}
	for name, text := range map[string]string{
		"etc/modules-load.d/cups.conf":                  "lp\n",
		"proc/sys/kernel/osrelease":                     "6.1.0-x\n",
		"lib/modules/6.1.0-x/modules.dep":               "kernel/net/br_netfilter.ko.xz: kernel/net/bridge.ko.xz\nkernel/nf-conntrack.ko:\n",
		"lib/modules/6.1.0-x/modules.builtin":           "kernel/fs/ext4/ext4.ko\n",
		"sys/module/kvm_intel/parameters/nested":        "N\n",
		"sys/module/kvm_intel/refcnt":                   "0\n",
		"sys/module/loop/parameters/max_loop":           "0\n",
		"sys/module/printk/parameters/time":             "Y\n",
		"sys/module/nouveau/refcnt":                     "0\n",
		"sys/module/tcp_cubic/parameters/initial_ssthr": "10\n",
	} {
		w.write(name, text)
	}
	if err := os.Chmod(w.path("sys/module/kvm_intel/parameters/nested"), 0o444); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.root, name) }

func (w *world) write(name, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(name)), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path(name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// Do implements Systemd.
func (w *world) Do(_ context.Context, job, unit string) error {
	w.jobs = append(w.jobs, job+" "+unit)
	name, _ := strings.CutPrefix(strings.TrimSuffix(unit, ".service"), "modprobe@")
	if w.fail == nil && name != "broken" {
		return os.MkdirAll(w.path("sys/module/"+name), 0o755)
	}
	return w.fail
}

func (w *world) item(want *spec.Modules, j item.Journal) *Item {
	return New(want, Places{w.path("etc"), w.path("sys"), w.path("proc"), w.path("lib")}, w, j)
}

// snapshot leaves out that a module is there: what was loaded stays.
func (w *world) snapshot() string {
	var out strings.Builder
	err := filepath.WalkDir(w.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && strings.HasPrefix(path, w.path("sys")) {
			return err
		}
		fmt.Fprint(&out, strings.TrimPrefix(path, w.root))
		if d.Type().IsRegular() {
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&out, " %q", data)
		}
		out.WriteByte('\n')
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.String()
}

func TestConformance(t *testing.T) {
	want := &spec.Modules{Load: []string{"br_netfilter", "nf_conntrack"}, Blacklist: []string{"pcspkr"}, Parameters: []spec.ModuleParameter{
		{Module: "loop", Name: "max_loop", Value: "8"}, {Module: "nf_conntrack", Name: "hashsize", Value: "1024"}, {Module: "printk", Name: "time", Value: "0"},
	}}
	itemtest.Run(t, func(t *testing.T) itemtest.World {
		w := newWorld(t)
		return itemtest.World{
			Wanted:   func(j item.Journal) item.Item { return w.item(want, j) },
			Empty:    func(j item.Journal) item.Item { return w.item(nil, j) },
			Snapshot: w.snapshot,
		}
	})
}

func check(t *testing.T, it *Item) map[string]spec.Drift {
	t.Helper()
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	byKey := map[string]spec.Drift{}
	for _, d := range drift {
		byKey[d.Key] = d
	}
	return byKey
}

// Files hold all that a boot needs.
func TestFiles(t *testing.T) {
	got := map[string]string{}
	for _, f := range Files(&spec.Modules{Load: []string{"a", "b"}, Blacklist: []string{"d"}, Parameters: []spec.ModuleParameter{
		{Module: "c", Name: "x", Value: "1"}, {Module: "c", Name: "bad", Value: "1\ninstall c /bin/sh"}}}) {
		got[f.Path] = f.Content
	}
	if got["/etc/modules-load.d/60-caisson-modules.conf"] != "a\nb\n" || got["/etc/modprobe.d/zz-caisson-modules.conf"] != "options c x=1\nblacklist d\n" || len(got) != 2 {
		t.Errorf("%q", got)
	}
	if f := Files(&spec.Modules{Load: []string{"a\nb"}}); f != nil {
		t.Errorf("%+v", f)
	}
}

// What the site says comes after what packages say: systemd brings "options dummy
// numdummies=0", and modprobe hands both to the kernel, which takes the last.
func TestParametersComeLast(t *testing.T) {
	require.Tool(t, "modprobe")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"systemd.conf":                    "options dummy numdummies=0\n",
		filepath.Base(rules.ModprobeFile): Files(&spec.Modules{Parameters: []spec.ModuleParameter{{Module: "dummy", Name: "numdummies", Value: "2"}}})[0].Content,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	said, err := exec.Command("modprobe", "-C", dir, "--showconfig").Output()
	if err != nil {
		t.Fatal(err)
	}
	if first, last := strings.Index(string(said), "numdummies=0"), strings.Index(string(said), "numdummies=2"); first < 0 || last < first {
		t.Errorf("modprobe reads\n%s", said)
	}
}

func TestCheckSays(t *testing.T) {
	w := newWorld(t)
	drift := check(t, w.item(&spec.Modules{Load: []string{"br_netfilter", "ext4", "kvm_intel", "unheard_of"}, Blacklist: []string{"nouveau", "printk"}, Parameters: []spec.ModuleParameter{
		{Module: "kvm_intel", Name: "nested", Value: "1"}, {Module: "printk", Name: "time", Value: "1"}, {Module: "later", Name: "x", Value: "1"},
		{Module: "loop", Name: "max_loop", Value: "a b"},
	}}, itemtest.Journal(t, t.TempDir())))
	for key, want := range map[string]struct{ action, reason string }{
		"br_netfilter": {spec.ActionAdd, ""}, "unheard_of": {spec.ActionDefer, "no such module for kernel 6.1.0-x"}, "nouveau": {spec.ActionDefer, "after a reboot"},
		"kvm_intel/nested": {spec.ActionDefer, "loaded again"}, "loop/max_loop": {spec.ActionRefuse, "not the value of a parameter"},
	} {
		if d := drift[key]; d.Action != want.action || !strings.Contains(d.Reason, want.reason) {
			t.Errorf("%s: %+v", key, d)
		}
	}
	for _, key := range []string{"ext4", "kvm_intel", "printk", "printk/time", "later/x"} {
		if d, ok := drift[key]; ok {
			t.Errorf("%s: %+v", key, d)
		}
	}
	if d := check(t, w.item(&spec.Modules{Load: []string{"a/b"}}, itemtest.Journal(t, t.TempDir())))["lists"]; d.Action != spec.ActionRefuse {
		t.Errorf("a name that climbs: %+v", d)
	}
}

// What cannot be loaded is said, and stops nothing else.
func TestLoadFails(t *testing.T) {
	w := newWorld(t)
	w.write("lib/modules/6.1.0-x/modules.dep", "broken.ko:\nnf-conntrack.ko:\n")
	it := w.item(&spec.Modules{Load: []string{"broken", "nf_conntrack"}}, itemtest.Journal(t, t.TempDir()))
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	err = it.Apply(t.Context(), drift)
	if err == nil || !strings.Contains(err.Error(), `load module "broken"`) || len(check(t, it)) != 1 {
		t.Errorf("%v; %+v", err, check(t, it))
	}
	if want := "start modprobe@broken.service start modprobe@nf_conntrack.service"; strings.Join(w.jobs, " ") != want {
		t.Errorf("jobs %q", w.jobs)
	}
	w.fail = errors.New("no bus")
	if err := it.Apply(t.Context(), drift); !errors.Is(err, w.fail) {
		t.Errorf("%v", err)
	}
}

// A module that was unloaded and loaded again has read its parameters again: it gets
// no original of before.
func TestLoadedAgain(t *testing.T) {
	w := newWorld(t)
	j := itemtest.Journal(t, t.TempDir())
	it := w.item(&spec.Modules{Parameters: []spec.ModuleParameter{{Module: "loop", Name: "max_loop", Value: "8"}}}, j)
	drift, err := it.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := it.Apply(t.Context(), drift); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.path("sys/module/loop"), w.path("old")); err != nil {
		t.Fatal(err)
	}
	w.write("sys/module/loop/parameters/max_loop", "4\n")
	if err := w.item(nil, j).Restore(t.Context(), j.Entries(Name)); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(w.path("sys/module/loop/parameters/max_loop")); err != nil || string(data) != "4\n" || len(j.Entries(Name)) > 0 {
		t.Errorf("%q, %v, %+v", data, err, j.Entries(Name))
	}
}
