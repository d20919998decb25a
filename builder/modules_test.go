// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/builder/boot"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/certified"
	"github.com/caisson-os/caisson/test/require"
)

// TestLongModules builds packages of Debian with sources of modules, as a site that names headers
// and dkms, too. Two builds are the same bytes, so no key of dkms has signed a module; what only
// compiles them is not in the layer; and the loader has the one that the site names.
func TestLongModules(t *testing.T) {
	require.Long(t)
	for _, suite := range []string{"trixie", "bookworm"} {
		t.Run(suite, func(t *testing.T) {
			o := testOptions(t)
			r := testRecipe()
			r.Base.Debian.Suite = suite
			r.AppArmor = spec.AppArmor{}
			r.Packages.Install = ask("dm-writeboost-dkms", "acpi-call-dkms", "dkms")
			r.Packages.Blacklist = []string{"gcc", "make"}
			r.Modules = []string{"network", "dm-writeboost"}
			signed := suite == "trixie"
			if signed {
				o.Boot = certified.NewBoot(t)
			}
			ledger, err := Settle([]spec.Recipe{r}, nil)
			if err != nil {
				t.Fatal(err)
			}
			o.Ledger = ledger
			o.Progress = func(e Event) {
				if e.State == "note" {
					t.Log(e.Text)
				}
			}
			lock, err := Resolve(t.Context(), r, o)
			if err != nil {
				t.Fatal(err)
			}
			o.Lock = &lock
			first, err := Build(t.Context(), r, "default", "1", o)
			if err != nil {
				t.Fatal(err)
			}
			modules := map[string][]byte{}
			for _, tree := range first.trees {
				for _, pattern := range []string{"usr/bin/*gcc*", "usr/bin/make", "usr/src/linux-*", "usr/lib/modules/*/build", "usr/sbin/dkms", "usr/lib/dkms", "etc/dkms", "var/lib/dkms", "usr/lib/linux-kbuild*"} {
					if found, _ := filepath.Glob(filepath.Join(tree, pattern)); len(found) > 0 {
						t.Errorf("in the layer: %q", found)
					}
				}
				found, _ := filepath.Glob(filepath.Join(tree, "usr/lib/modules/*/updates/dkms/*"))
				for _, name := range found {
					if modules[filepath.Base(name)], err = os.ReadFile(name); err != nil {
						t.Fatal(err)
					}
				}
			}
			for _, name := range []string{"dm-writeboost.ko", "acpi_call.ko"} {
				f, err := elf.NewFile(bytes.NewReader(modules[name]))
				if err != nil || f.Section(".modinfo") == nil || bytes.HasSuffix(modules[name], []byte("~Module signature appended~\n")) != signed {
					t.Errorf("%s: %v", name, err)
				}
			}
			for _, b := range first.Blobs {
				kernel, err := os.ReadFile(b.Path)
				if err != nil {
					t.Fatal(err)
				}
				if b.Title == "kernel" && signed != (o.Boot != nil && bytes.Contains(kernel, o.Boot.Certificate().Raw)) {
					t.Error("the kernel is signed by another key, or by one though there is none")
				}
			}
			has := func(name string) bool {
				return slices.ContainsFunc(first.Layer.Packages, func(p spec.InstalledPackage) bool { return p.Name == name })
			}
			if !has("dm-writeboost-dkms") || has("dkms") || has("gcc") {
				t.Error("what is described is not what compiled packages of sources")
			}
			if initrd := initrdOf(t, first); !strings.Contains(initrd, "updates/dkms/dm-writeboost.ko") || strings.Contains(initrd, "acpi_call") {
				t.Error("the loader has not the module that the site names, or another one")
			}
			if !signed {
				namesUnsigned(t, r, o, first.trees)
			}
			notCompiled(t, r, o)
			o.Again = true
			second, err := Build(t.Context(), r, "default", "1", o)
			if err != nil {
				t.Fatal(err)
			}
			if differ, err := Differ(first, second); err != nil || len(differ) > 0 {
				t.Errorf("two builds differ in %q, %v", differ, err)
			}
		})
	}
}

// namesUnsigned makes the boot files once more of a layer's trees, with a boot key that has signed
// none of its modules.
func namesUnsigned(t *testing.T, recipe spec.Recipe, o Options, trees []string) {
	t.Helper()
	trees = slices.Clone(trees)
	slices.Reverse(trees)
	var notes strings.Builder
	o.Boot, o.Progress = certified.NewBoot(t), func(e Event) { notes.WriteString(e.Text + "\n") }
	if _, _, err := makeBoot(t.Context(), &build{options: o, recipe: recipe}, &root.Root{Lowers: trees}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	_, named, _ := strings.Cut(notes.String(), "modules that nobody signed, which a kernel under lockdown does not load: ")
	if !strings.Contains(named, "updates/dkms/acpi_call.ko") || strings.Contains(named, "kernel") {
		t.Errorf("of modules that nobody signed it names %q, in\n%s", named, notes.String())
	}
}

// notCompiled installs sources that the compiler of the layer's kernel refuses.
func notCompiled(t *testing.T, recipe spec.Recipe, o Options) {
	t.Helper()
	b := &build{options: o, recipe: recipe, done: map[string]made{}, checked: map[string]bool{}}
	release, err := b.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if err := errors.Join(b.resolve(t.Context()), b.step(t.Context(), steps[0])); err != nil {
		t.Fatal(err)
	}
	b.store.Kept, b.store.Signed = []string{t.TempDir()}, false
	wrong := deb{name: "wrong-dkms", version: "1", fields: "Depends: dkms\n", files: map[string]string{
		"usr/src/wrong-1/dkms.conf": "PACKAGE_NAME=wrong\nPACKAGE_VERSION=1\nBUILT_MODULE_NAME=wrong\nDEST_MODULE_LOCATION=/updates\nAUTOINSTALL=yes\n" +
			"MAKE=\"make -C $kernel_source_dir M=$dkms_tree/wrong/1/build modules\"\n",
		"usr/src/wrong-1/Makefile": "obj-m := wrong.o\n",
		"usr/src/wrong-1/wrong.c":  "#include <linux/module.h>\nMODULE_LICENSE(\"GPL\");\nint init_module(void) { return no_such_function(); }\n",
	}}.build(t, b.store)
	repo := t.TempDir()
	if err := b.store.Repo(repo, "caisson", []apt.Deb{wrong}); err != nil {
		t.Fatal(err)
	}
	r := &root.Root{Lowers: []string{filepath.Join(b.done[stepBase].dir, "tree")}, Upper: t.TempDir(), Work: b.tmp}
	err = b.withModules(t.Context(), r, func() error {
		return packages.Install(t.Context(), r, spec.Packages{Install: ask("wrong-dkms")}, b.baseNames(), packages.Locked{Repo: repo})
	})
	if err == nil || !strings.Contains(err.Error(), "module wrong 1:") || !strings.Contains(err.Error(), "no_such_function") {
		t.Errorf("what does not compile: %v", err)
	}
	t.Log(err)
}

// TestApart: what modules are made with is in the lock for itself, also where the layer may not
// have it and where the site names dkms; without headers no archive is asked in vain at build.
func TestApart(t *testing.T) {
	a := newArchive(t)
	needs := []deb{
		{name: testRecipe().Kernel, fields: "Depends: linux-image-6.1.0-2-x\n"}, {name: "linux-image-6.1.0-2-x"},
		{name: "mod-dkms", fields: "Depends: dkms (>= 0.5)\nRecommends: tree\n"}, {name: "user", fields: "Depends: mod-dkms\n"},
		{name: "dkms", fields: "Depends: gcc, make\n"}, {name: "gcc"}, {name: "make"},
	}
	headers := deb{name: "linux-headers-6.1.0-2-x", fields: "Depends: gcc-12\n"}
	for _, c := range []struct {
		name            string
		lists           []deb
		install, never  []string
		packages, tools []string
		want            string
	}{
		{"tools", append(slices.Clone(needs), headers, deb{name: "gcc-12"}), []string{"user"}, nil, []string{"mod-dkms", "user"}, []string{"dkms", "gcc", "gcc-12", "linux-headers-6.1.0-2-x", "make"}, ""},
		{"a compiler that is blacklisted, and dkms by name", append(slices.Clone(needs), headers, deb{name: "gcc-12"}), []string{"dkms", "mod-dkms"}, []string{"gcc"}, []string{"mod-dkms"}, []string{"dkms", "gcc", "gcc-12", "linux-headers-6.1.0-2-x", "make"}, ""},
		{"tools that the site names stay", append(slices.Clone(needs), headers, deb{name: "gcc-12"}), []string{"make", "mod-dkms"}, nil, []string{"make", "mod-dkms"}, []string{"dkms", "gcc", "gcc-12", "linux-headers-6.1.0-2-x"}, ""},
		{"no sources", needs, []string{"dkms", "tree"}, nil, []string{"tree"}, nil, ""},
		{"no headers", needs, []string{"mod-dkms"}, nil, nil, nil, "linux-headers-6.1.0-2-x"},
		{"headers without their compiler", append(slices.Clone(needs), headers), []string{"mod-dkms"}, nil, nil, nil, "gcc-12"},
		{"a package that is not there", needs, []string{"mod-dkms", "nothing"}, nil, nil, nil, "nothing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a.list("1", slices.Clone(c.lists)...)
			a.sign(1)
			cache := t.TempDir()
			b := &build{options: Options{CacheDir: cache}, recipe: testRecipe(), done: map[string]made{}}
			b.recipe.Packages.Install, b.recipe.Packages.Blacklist = ask(c.install...), c.never
			for _, sub := range []string{"resolved", "apt"} {
				if err := os.Mkdir(filepath.Join(cache, sub), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			var err error
			if b.baseApt, err = apt.Open(t.Context(), filepath.Join(cache, "apt/state"), "amd64",
				[]apt.Archive{{ID: "debian", URI: "file:" + a.dir, Suites: []string{"trixie"}, Components: []string{"main"}, Keyring: a.keyring()}}); err != nil {
				t.Fatal(err)
			}
			b.apt = b.baseApt
			l, err := b.solve(t.Context())
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q in it", err, c.want)
				}
				return
			}
			if err != nil || !slices.Equal(names(l.Packages), c.packages) || !slices.Equal(names(l.Tools), c.tools) {
				t.Errorf("packages %q, tools %q, %v", names(l.Packages), names(l.Tools), err)
			}
			b.options.Lock = &l
			if err := b.locked(); err != nil || !slices.Equal(names(b.chosen.Tools), c.tools) {
				t.Errorf("by the lock: tools %q, %v", names(b.chosen.Tools), err)
			}
			l.Packages, l.Tools = append(l.Packages, l.Tools...), nil
			if err := b.locked(); (err != nil) != (c.tools != nil) {
				t.Errorf("a lock of before, with tools for the layer: %v", err)
			}
		})
	}
}

// TestTools installs packages with sources, whose scripts call dkms, and makes the module by a
// program that stands for it: the layer's record of packages has no more than what stays.
func TestTools(t *testing.T) {
	i := newInstaller(t)
	r := &root.Root{Lowers: []string{i.base}, Upper: t.TempDir(), Work: t.TempDir()}
	release, _, err := boot.Kernel(r)
	if err != nil {
		t.Fatal(err)
	}
	in := "/usr/lib/modules/" + release
	sources := deb{name: "mod-dkms", version: "1", fields: "Depends: dkms (>= 2.1)\n", files: map[string]string{"usr/src/mod-1/dkms.conf": "x\n",
		"DEBIAN/postinst": "#!/bin/sh\nset -e\n[ -f /usr/lib/dkms/common.postinst ]\n/usr/lib/dkms/common.postinst mod 1\n"}}
	manager := deb{name: "dkms", version: "3", files: map[string]string{in[1:] + "/build/Makefile": "", "usr/sbin/dkms": "#!/bin/sh\nset -e\n[ $1 = autoinstall ] || exit 0\n" +
		"cd " + in + "; mkdir -p updates/dkms; cp kernel/drivers/net/dummy.ko.xz updates/dkms/mod.ko.xz\n" +
		"mkdir -p /var/lib/dkms/mod/1/x; touch /var/lib/dkms/mod/1/source; ln -s 1/x /var/lib/dkms/mod/kernel-$3-x\n"}}
	b := &build{store: i.store, tmp: t.TempDir(), baseApt: new(apt.State)}
	kept := []apt.Deb{sources.build(t, i.store)}
	b.chosen.Tools = []apt.Deb{manager.build(t, i.store)}
	repo := t.TempDir()
	if err := i.store.Repo(repo, "caisson", kept); err != nil {
		t.Fatal(err)
	}
	err = b.withModules(t.Context(), r, func() error {
		return packages.Install(t.Context(), r, spec.Packages{Install: ask("mod-dkms"), Strict: true}, append(slices.Clone(base.Include), testRecipe().Kernel), packages.Locked{Repo: repo})
	})
	if err != nil {
		t.Fatal(err)
	}
	if !has(t, r, "mod-dkms") || has(t, r, "dkms") {
		t.Error("the packages are not those that stay")
	}
	for _, name := range []string{"/usr/sbin/dkms", "/usr/lib/dkms", "/var/lib/dkms", in + "/build", "/var/lib/dpkg/info/dkms.list"} {
		if _, err := r.Lstat(name); err == nil {
			t.Errorf("%s is in the layer", name)
		}
	}
	if dep, err := r.ReadFile(in + "/modules.dep"); err != nil || !strings.Contains(string(dep), "\nupdates/dkms/mod.ko:") && !strings.HasPrefix(string(dep), "updates/dkms/mod.ko:") {
		t.Errorf("the tables have no module, %v", err)
	}
	if found, _ := filepath.Glob(filepath.Join(b.tmp, "tools-*")); len(found) > 0 {
		t.Errorf("left behind: %q", found)
	}
}

// initrdOf returns what a layer's initrd has after the microcode, unpacked.
func initrdOf(t *testing.T, r *Result) string {
	t.Helper()
	for _, b := range r.Blobs {
		if b.Title != "initrd" {
			continue
		}
		data, err := os.ReadFile(b.Path)
		if err != nil {
			t.Fatal(err)
		}
		z, err := zstd.NewReader(bytes.NewReader(data[bytes.Index(data, []byte{0x28, 0xb5, 0x2f, 0xfd}):]))
		if err != nil {
			t.Fatal(err)
		}
		defer z.Close()
		text, err := io.ReadAll(io.LimitReader(z, 512<<20))
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) { // zeros follow
			t.Fatal(err)
		}
		return string(text)
	}
	t.Fatal("no initrd")
	return ""
}
