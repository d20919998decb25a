// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
)

// service is a package with an account of its own, made in one of the three ways
// that packages have, and a file that it owns.
func service(name, how, after string) deb {
	d := deb{name: name, version: "1", fields: "Depends: adduser\n", files: map[string]string{}}
	if after != "" { // apt configures what it depends on first
		d.fields = "Depends: adduser, " + after + "\n"
		d.version = "1+" + after
	}
	make := map[string]string{
		"useradd":  "useradd --system --user-group --home-dir /var/lib/" + name + " --shell /bin/sh " + name,
		"adduser":  "adduser --quiet --system --group --home /var/lib/" + name + " " + name,
		"sysusers": "systemd-sysusers " + name + ".conf",
	}[how]
	if how == "sysusers" {
		d.files["usr/lib/sysusers.d/"+name+".conf"] = "u " + name + " - \"" + name + "\" /var/lib/" + name + "\n"
	}
	d.files["DEBIAN/postinst"] = "#!/bin/sh\nset -e\nif ! getent passwd " + name + " >/dev/null; then\n" + make + "\nmkdir -p /var/lib/" + name + "\nchown " + name + ":" + name + " /var/lib/" + name + "\nfi\n" +
		"cd /var/lib/" + name + "\ntouch tool link-a\nchown -h " + name + ":" + name + " tool link-a\nchmod 6711 tool\nln -f link-a link-b\nln -sf tool symlink\nchown -h " + name + " symlink\n" +
		"touch capable\nchown root:" + name + " capable\nif command -v setcap >/dev/null; then setcap cap_net_raw+ep capable; fi\n"
	return d
}

// fleet builds layers one after another, each with the ledger of the one before.
type fleet struct {
	t      *testing.T
	o      Options
	recipe spec.Recipe
	lock   packages.Lock
	store  *apt.Store
	ledger []spec.Account
	steps  map[string]string // how each step ended, of the last build
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, o: testOptions(t), recipe: testRecipe()}
	f.recipe.Packages.Install = ask("adduser", "libcap2-bin")
	first := settled(t, f.recipe, f.o)
	f.lock, f.ledger = first.Lock, first.Ledger
	// Packages of its own, that no archive has. The base stays that of other tests: its packages are signed.
	f.o.Debs, f.o.Unsigned = t.TempDir(), []string{"ant", "bee", "cat", "dog", "elk"}
	f.store = &apt.Store{Dir: t.TempDir(), Kept: []string{f.o.Debs}}
	return f
}

func settled(t *testing.T, recipe spec.Recipe, o Options) *Result {
	t.Helper()
	var err error
	if o.Ledger, err = Settle([]spec.Recipe{recipe}, o.Ledger); err != nil {
		t.Fatal(err)
	}
	r, err := Build(context.Background(), recipe, "default", "1", o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// build makes the next layer, of these packages.
func (f *fleet) build(debs ...deb) *root.Root {
	f.t.Helper()
	recipe, o, lock := f.recipe, f.o, f.lock
	lock.Packages = slices.Clone(lock.Packages)
	for _, d := range debs {
		recipe.Packages.Install = append(slices.Clone(recipe.Packages.Install), spec.Package{Name: d.name})
		lock.Packages = append(lock.Packages, d.build(f.t, f.store))
	}
	if len(debs) > 0 {
		lock.Recipe = (&build{recipe: recipe}).lockKey()
	}
	f.steps = map[string]string{}
	o.Lock, o.Ledger = &lock, f.ledger
	o.Progress = func(e Event) { f.steps[e.Step] = e.State }
	r := settled(f.t, recipe, o)
	f.ledger = r.Ledger
	var trees []string
	for _, name := range []string{"accounts", "packages", "base"} {
		for _, blob := range r.Blobs {
			if blob.Title == name {
				trees = append(trees, filepath.Join(filepath.Dir(blob.Path), "tree"))
			}
		}
	}
	return &root.Root{Lowers: trees}
}

// numbers reads "user uid:gid" of the accounts that packages made, with all that
// they own.
func (f *fleet) numbers(r *root.Root, names ...string) map[string]string {
	f.t.Helper()
	all, err := accounts.System(r)
	if err != nil {
		f.t.Fatal(err)
	}
	found := map[string]string{}
	for _, row := range all {
		if row.UID > 0 && slices.Contains(names, row.Name) {
			found[row.Name] = fmt.Sprintf("%d:%d", row.UID, row.GID)
		}
	}
	for _, name := range names {
		if found[name] == "" {
			f.t.Fatalf("there is no user %s", name)
		}
		for file, want := range map[string]os.FileMode{"": os.ModeDir, "/tool": os.ModeSetuid | os.ModeSetgid | 0o711, "/link-a": 0, "/link-b": 0, "/symlink": os.ModeSymlink} {
			info, err := r.Lstat("/var/lib/" + name + file)
			if err != nil {
				f.t.Error(err)
				continue
			}
			st := info.Sys().(*syscall.Stat_t)
			owner := fmt.Sprintf("%d:%d", st.Uid, st.Gid)
			if file == "/symlink" { // its script gave it the user alone
				owner = strings.TrimSuffix(owner, ":0") + found[name][strings.IndexByte(found[name], ':'):]
			}
			if owner != found[name] || info.Mode()&want != want {
				f.t.Errorf("%s's %s belongs to %s with mode %v, the user is %s", name, file, owner, info.Mode(), found[name])
			}
		}
		at, err := r.Path("/var/lib/" + name + "/capable")
		if err != nil {
			f.t.Fatal(err)
		}
		info, _ := os.Lstat(at)
		if gid := info.Sys().(*syscall.Stat_t).Gid; !strings.HasSuffix(found[name], fmt.Sprintf(":%d", gid)) {
			f.t.Errorf("%s's file has group %d, the user is %s", name, gid, found[name])
		}
		if n, err := unix.Lgetxattr(at, "security.capability", nil); err != nil || n == 0 {
			f.t.Errorf("%s's file has lost its capability: %v", name, err)
		}
	}
	return found
}

func same(t *testing.T, before, after map[string]string) {
	t.Helper()
	for name, number := range before {
		if now, there := after[name]; there && now != number {
			t.Errorf("%s was %s and is %s", name, number, now)
		}
	}
}

// Whatever the order in which packages make their users, and the users that left in
// between, a name keeps its numbers, and nobody gets those of another.
func TestSystemAccounts(t *testing.T) {
	f := newFleet(t)
	first := f.numbers(f.build(service("ant", "useradd", ""), service("bee", "adduser", "ant"), service("cat", "sysusers", "bee")), "ant", "bee", "cat")
	t.Logf("first: %v", first)

	turned := f.build(service("cat", "sysusers", ""), service("bee", "adduser", "cat"), service("ant", "useradd", "bee"))
	same(t, first, f.numbers(turned, "ant", "bee", "cat"))
	if f.steps["base"] != "cached" {
		t.Errorf("the base was made anew: %v", f.steps)
	}
	before := slices.Clone(f.ledger)
	f.build(service("cat", "sysusers", ""), service("bee", "adduser", "cat"), service("ant", "useradd", "bee"))
	if f.steps["packages"] != "cached" || !slices.Equal(f.ledger, before) {
		t.Errorf("a build of the same made something: %v", f.steps)
	}

	// ant and bee leave; dog and elk, who came alone, would get their numbers.
	less := f.build(service("dog", "useradd", ""), service("elk", "adduser", "dog"))
	second := f.numbers(less, "dog", "elk")
	t.Logf("without them: %v", second)
	for name, number := range second {
		for old, taken := range first {
			if a, b, _ := strings.Cut(number, ":"); a == strings.Split(taken, ":")[0] || b == strings.Split(taken, ":")[1] {
				t.Errorf("%s has %s, and %s had %s", name, number, old, taken)
			}
		}
	}
	passwd, err := less.ReadFile("/etc/passwd")
	if err != nil || strings.Contains(string(passwd), "\nant:") {
		t.Errorf("who left is in the layer: %v", err)
	}

	all := f.numbers(f.build(service("elk", "adduser", ""), service("dog", "useradd", "elk"), service("bee", "sysusers", "dog"), service("ant", "adduser", "bee")), "ant", "bee", "dog", "elk")
	same(t, first, all)
	same(t, second, all)
}

// A base that numbers its own users otherwise than the fleet has them gives way.
func TestSystemAccountsOfBase(t *testing.T) {
	f := &fleet{t: t, o: testOptions(t), recipe: testRecipe()}
	f.o.SiteDir = filepath.Dir(newInstaller(t).tar(t.TempDir())) // quicker than to bootstrap one
	f.recipe.Base, f.recipe.Packages = spec.Base{Tar: "base.tar"}, spec.Packages{}
	first := settled(t, f.recipe, f.o)
	f.lock, f.ledger = first.Lock, first.Ledger
	plain := f.build()
	rows, err := accounts.System(plain)
	if err != nil {
		t.Fatal(err)
	}
	was := map[string]int{}
	for _, row := range rows {
		if row.UID > 0 {
			was[row.Name] = row.UID
		}
	}
	if was["sshd"] == 0 || was["messagebus"] == 0 {
		t.Fatalf("no users in the base: %v", was)
	}
	for i := range f.ledger { // as if the two had been made the other way round
		switch f.ledger[i].Name {
		case "sshd":
			f.ledger[i].UID = was["messagebus"]
		case "messagebus":
			if f.ledger[i].UID > 0 {
				f.ledger[i].UID = was["sshd"]
			}
		}
	}
	r := f.build()
	rows, err = accounts.System(r)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		switch want := map[string]int{"sshd": was["messagebus"], "messagebus": was["sshd"]}[row.Name]; {
		case row.UID > 0 && want != 0 && row.UID != want:
			t.Errorf("%s has %d, the ledger says %d", row.Name, row.UID, want)
		case row.UID > 0 && want == 0 && row.UID != was[row.Name]:
			t.Errorf("%s has %d, and had %d", row.Name, row.UID, was[row.Name])
		}
	}
	f.build()
	if f.steps["base"] != "cached" {
		t.Errorf("the base with its numbers is not remembered: %v", f.steps)
	}

	f.ledger = append(f.ledger, spec.Account{Name: "other", UID: was["sshd"], GID: 65534, State: "system"})
	if _, err := Settle([]spec.Recipe{f.recipe}, f.ledger); err == nil || !strings.Contains(err.Error(), `"other"`) {
		t.Errorf("a ledger with one number for two: %v", err)
	}
}
