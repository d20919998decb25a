// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/builder/root"
	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/spec"
)

// deb is a package made for a test: files below "DEBIAN" are its scripts.
type deb struct {
	name, version, fields string
	files                 map[string]string
}

// build makes the file and describes it.
func (d deb) build(t *testing.T, store *apt.Store) apt.Deb {
	t.Helper()
	tree := t.TempDir()
	files := map[string]string{"DEBIAN/control": fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: Test <test@example.org>\nDescription: test\n%s", d.name, d.version, d.fields)}
	for name, text := range d.files {
		files[name] = text
	}
	for name, text := range files {
		perm := os.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			perm = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), perm); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "x.deb")
	cmd := exec.Command("dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, out)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, said)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	result := apt.Deb{Name: d.name, Version: d.version, Arch: "all", SHA256: fmt.Sprintf("%x", sha256.Sum256(data)), Size: int64(len(data)), Archive: "test"}
	if err := os.WriteFile(filepath.Join(store.Kept[0], result.FileName()), data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := store.Fetch(context.Background(), nil, []apt.Deb{result}, nil); err != nil {
		t.Fatal(err)
	}
	return result
}

// installer is a base tree to install on.
type installer struct {
	t     *testing.T
	base  string
	store *apt.Store
	loose bool // the repository has more than the lock names
}

func newInstaller(t *testing.T) *installer {
	t.Helper()
	settled(t, testRecipe(), testOptions(t))
	trees, _ := filepath.Glob(filepath.Join(sharedCache, "steps", "base-*", "tree"))
	if len(trees) == 0 {
		t.Fatal("no base tree in the cache")
	}
	return &installer{t: t, base: trees[0], store: &apt.Store{Dir: t.TempDir(), Kept: []string{t.TempDir()}}}
}

// install runs the packages step on a fresh upper tree.
func (i *installer) install(p spec.Packages, debs ...deb) (*root.Root, error) {
	i.t.Helper()
	r := &root.Root{Lowers: []string{i.base}, Upper: i.t.TempDir(), Work: i.t.TempDir()}
	var list []apt.Deb
	for _, d := range debs {
		list = append(list, d.build(i.t, i.store))
	}
	repo := i.t.TempDir()
	if err := i.store.Repo(repo, "caisson", list); err != nil {
		i.t.Fatal(err)
	}
	locked := list
	if i.loose {
		locked = nil
	}
	err := packages.Install(context.Background(), r, p, append(slices.Clone(base.Include), "linux-image-cloud-amd64"), packages.Locked{Repo: repo, Debs: locked})
	if err != nil {
		return r, err
	}
	return r, base.Scrub(r.Upper)
}

func has(t *testing.T, r *root.Root, name string) bool {
	t.Helper()
	all, err := packages.Installed(r)
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(all, func(p spec.InstalledPackage) bool { return p.Name == name })
}

func ask(names ...string) []spec.Package {
	var all []spec.Package
	for _, n := range names {
		all = append(all, spec.Package{Name: n})
	}
	return all
}

// TestLocked: each package of a lock is installed, also one of two that another can do with, and
// those that nobody asked for are marked as such.
func TestLocked(t *testing.T) {
	i := newInstaller(t)
	r, err := i.install(spec.Packages{Install: ask("one")}, deb{name: "one", version: "1", fields: "Depends: first | second\n"}, deb{name: "first", version: "1"}, deb{name: "second", version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "first", "second"} {
		if !has(t, r, name) {
			t.Errorf("%s is not installed", name)
		}
	}
	marks, err := r.ReadFile("/var/lib/apt/extended_states")
	if err != nil {
		t.Fatal(err)
	}
	for name, auto := range map[string]bool{"one": false, "first": true, "second": true} {
		if _, after, ok := strings.Cut(string(marks), "Package: "+name+"\n"); ok != auto || ok && !strings.Contains(strings.Split(after, "\n\n")[0], "Auto-Installed: 1") {
			t.Errorf("%s: marked %v, want %v", name, ok, auto)
		}
	}
}

// TestLockedForNothing: a package that a lock names, and nothing needs, ends the build.
func TestLockedForNothing(t *testing.T) {
	i := newInstaller(t)
	_, err := i.install(spec.Packages{Install: ask("one")}, deb{name: "one", version: "1"}, deb{name: "stranger", version: "1"})
	if err == nil || !strings.Contains(err.Error(), "stranger: in the lock, and nothing needs it") {
		t.Error(err)
	}
}

// A service does not start, whichever way its package tries; debconf answers are
// there in time; configuration files are the package's; nothing is left over.
func TestInstall(t *testing.T) {
	i := newInstaller(t)
	service := deb{name: "service", version: "1.0", fields: "Depends: lib\n", files: map[string]string{
		"usr/lib/systemd/system/service.service": "[Service]\nExecStart=/bin/touch /started\n[Install]\nWantedBy=multi-user.target\n",
		"etc/init.d/service":                     "#!/bin/sh\ntouch /started\n",
		"etc/service.conf":                       "from the package\n",
		"DEBIAN/conffiles":                       "/etc/service.conf\n/etc/init.d/service\n",
		"DEBIAN/templates":                       "Template: service/word\nType: string\nDefault: none\nDescription: word\n",
		"DEBIAN/config":                          "#!/bin/sh\n. /usr/share/debconf/confmodule\ndb_input high service/word || true\ndb_go || true\n",
		"DEBIAN/postinst": "#!/bin/sh\nset -e\n. /usr/share/debconf/confmodule\ndb_get service/word\necho \"$RET\" >/etc/service.word\n" +
			"deb-systemd-helper enable service.service >/dev/null\ndeb-systemd-invoke start service.service >&2\ninvoke-rc.d service start >&2\n" +
			"ip link >&2 2>/dev/null | grep -c . || true\n[ ! -e /sys/class/net/eth0 ]\nexit 0\n",
	}}
	p := spec.Packages{Install: []spec.Package{{Name: "service", Debconf: []spec.Debconf{{Question: "service/word", Type: "string", Answer: "an $answer `with` 'quotes'"}}}}, Hold: []string{"service"}}
	r, err := i.install(p, service, deb{name: "lib", version: "1.0"})
	if err != nil {
		t.Fatal(err)
	}
	if !has(t, r, "service") || !has(t, r, "lib") {
		t.Error("not installed")
	}
	if _, err := r.Lstat("/started"); err == nil {
		t.Error("the service was started")
	}
	if got, err := r.ReadFile("/etc/service.word"); err != nil || string(got) != "an $answer `with` 'quotes'\n" {
		t.Errorf("debconf's answer is %q, %v", got, err)
	}
	late := []spec.Package{p.Install[0], {Name: "lib"}, {Name: "later", Debconf: p.Install[0].Debconf}}
	if names, err := packages.SetUp(r, late); err != nil || !slices.Equal(names, []string{"service"}) {
		t.Errorf("answers come late for %q, %v", names, err)
	}
	if _, err := r.Lstat("/etc/systemd/system/multi-user.target.wants/service.service"); err != nil {
		t.Errorf("the service is not enabled for the boot: %v", err)
	}
	status, err := r.ReadFile("/var/lib/dpkg/status")
	if err != nil || !strings.Contains(string(status), "Package: service\nStatus: hold ok installed") {
		t.Errorf("not held: %v", err)
	}
	for _, dir := range []string{"usr/sbin/policy-rc.d", "tmp/*", "run/*", "var/lib/apt/lists/*", "var/cache/apt/*", "var/log/*", "dev/*", "root/*", "proc/*"} {
		left, _ := filepath.Glob(filepath.Join(r.Upper, dir))
		left = slices.DeleteFunc(left, func(name string) bool { info, err := os.Stat(name); return err == nil && info.IsDir() })
		if len(left) > 0 {
			t.Errorf("left over: %v", left)
		}
	}
}

func TestRemove(t *testing.T) {
	i := newInstaller(t)
	i.loose = true
	app, lib, spare := deb{name: "app", version: "1", fields: "Depends: lib\n"}, deb{name: "lib", version: "1"}, deb{name: "spare", version: "1"}
	fan := deb{name: "fan", version: "1", fields: "Recommends: spare\n"}
	tests := []struct {
		name   string
		p      spec.Packages
		there  []string
		gone   []string
		reason string
	}{
		{"nothing", spec.Packages{Install: ask("app")}, []string{"app", "lib", "ethtool"}, nil, ""},
		{"blacklist removes what came along", spec.Packages{Install: ask("fan"), Recommends: true, Blacklist: []string{"spare", "not-there"}}, []string{"fan"}, []string{"spare"}, ""},
		{"blacklist spares what boots", spec.Packages{Blacklist: []string{"udev"}}, nil, nil, "udev needs it"},
		{"blacklist of what is needed", spec.Packages{Install: ask("app"), Blacklist: []string{"lib"}}, nil, nil, "app needs it"},
		{"strict keeps what is needed", spec.Packages{Install: ask("app"), Strict: true}, []string{"app", "lib", "systemd", "linux-image-cloud-amd64", "openssh-server"}, nil, ""},
		{"strict keeps what is asked for", spec.Packages{Install: ask("spare"), Strict: true}, []string{"spare", "systemd"}, []string{"lib"}, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			i.t = t
			r, err := i.install(test.p, app, lib, spare, fan)
			if test.reason != "" {
				if err == nil || !strings.Contains(err.Error(), test.reason) {
					t.Fatalf("got %v, want an error with %q", err, test.reason)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range test.there {
				if !has(t, r, name) {
					t.Errorf("%s is not there", name)
				}
			}
			for _, name := range test.gone {
				if has(t, r, name) {
					t.Errorf("%s is still there", name)
				}
			}
		})
	}
}

// A script that fails, and files of two packages that collide: the reason is in
// the error, not a log of the installation.
func TestInstallFails(t *testing.T) {
	i := newInstaller(t)
	tests := []struct {
		name string
		debs []deb
		want string
	}{
		{"script", []deb{{name: "app", version: "1", files: map[string]string{"DEBIAN/postinst": "#!/bin/sh\nseq 100\necho much talk\necho no database >&2\nexit 7\n"}}}, "much talk; no database"},
		{"collision", []deb{{name: "app", version: "1", fields: "Depends: other\n", files: map[string]string{"usr/share/x": "1"}}, {name: "other", version: "1", files: map[string]string{"usr/share/x": "2"}}}, "/usr/share/x"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			i.t = t
			_, err := i.install(spec.Packages{Install: ask("app")}, test.debs...)
			if err == nil || !strings.Contains(err.Error(), test.want) || len(err.Error()) > 800 || strings.Contains(err.Error(), "97") {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

// TestCompleteRoot: a cached step without roots gets its own, and keeps them.
func TestCompleteRoot(t *testing.T) {
	dir, data := t.TempDir(), bytes.Repeat([]byte("image of a step "), 2*verity.Block/16)
	if err := os.WriteFile(filepath.Join(dir, imageName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	image := &spec.Image{Name: "base", Blob: spec.Blob{Digest: digests.Of(data), Size: int64(len(data))}}
	older := made{Key: "k", Image: image, dir: dir}
	if err := older.write(dir); err != nil {
		t.Fatal(err)
	}
	want, err := verity.Root(bytes.NewReader(data), int64(len(data)), verity.Hash(sha256.Sum256(data)))
	if err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"at first", "again"} {
		m, err := (&build{}).cached("base", dir, "k")
		if err != nil || m == nil || m.Root != want.String() {
			t.Fatalf("%s: %+v, %v; want root %s", when, m, err, want)
		}
		if err := os.Remove(filepath.Join(dir, imageName)); err != nil && when == "at first" { // so that the second one is not made again
			t.Fatal(err)
		}
	}
}
