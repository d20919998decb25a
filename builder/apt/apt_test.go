// SPDX-License-Identifier: Apache-2.0

package apt

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// archive is a repository in a directory, made for a test.
type archive struct {
	t       *testing.T
	dir     string
	release string // fields of its Release
}

func newArchive(t *testing.T) *archive {
	t.Helper()
	require.Tool(t, "apt-get", "apt-cache", "apt-config", "dpkg-deb")
	return &archive{t: t, dir: t.TempDir(), release: "Suite: test\nCodename: test\n"}
}

// add makes a package with the given control fields.
func (a *archive) add(name, version string, fields ...string) {
	a.t.Helper()
	tree := a.t.TempDir()
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: Test <test@example.org>\nDescription: test\n", name, version)
	for _, f := range fields {
		control += f + "\n"
	}
	if err := os.MkdirAll(filepath.Join(tree, "DEBIAN"), 0o755); err != nil {
		a.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "DEBIAN/control"), []byte(control), 0o644); err != nil {
		a.t.Fatal(err)
	}
	out := filepath.Join(a.dir, Deb{Name: name, Version: version, Arch: "all"}.FileName())
	if said, err := exec.Command("dpkg-deb", "--root-owner-group", "--build", tree, out).CombinedOutput(); err != nil {
		a.t.Fatalf("dpkg-deb: %v\n%s", err, said)
	}
	a.index()
}

func (a *archive) drop(name, version string) {
	a.t.Helper()
	if err := os.Remove(filepath.Join(a.dir, Deb{Name: name, Version: version, Arch: "all"}.FileName())); err != nil {
		a.t.Fatal(err)
	}
	a.index()
}

func (a *archive) index() {
	a.t.Helper()
	files, _ := filepath.Glob(filepath.Join(a.dir, "*.deb"))
	var b strings.Builder
	for _, file := range files {
		control, err := exec.Command("dpkg-deb", "--field", file).Output()
		if err != nil {
			a.t.Fatal(err)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			a.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%sFilename: ./%s\nSize: %d\nSHA256: %x\n\n", control, filepath.Base(file), len(data), sha256.Sum256(data))
	}
	packages := b.String()
	release := a.release + fmt.Sprintf("Date: Thu, 19 Nov 2026 10:00:00 UTC\nArchitectures: all amd64\nSHA256:\n %x %d Packages\n",
		sha256.Sum256([]byte(packages)), len(packages))
	for name, text := range map[string]string{"Packages": packages, "Release": release} {
		if err := os.WriteFile(filepath.Join(a.dir, name), []byte(text), 0o644); err != nil {
			a.t.Fatal(err)
		}
	}
}

// state opens a private apt on the archive and fetches its index.
func (a *archive) state(trusted bool) *State {
	a.t.Helper()
	s, err := Open(context.Background(), a.t.TempDir(), "amd64", []Archive{{ID: "test", URI: "copy:" + a.dir, Suites: []string{"./"}, Trusted: trusted}})
	if err != nil {
		a.t.Fatal(err)
	}
	return s
}

func (a *archive) updated() *State {
	a.t.Helper()
	s := a.state(true)
	if err := s.Update(context.Background()); err != nil {
		a.t.Fatal(err)
	}
	return s
}

// TestArchiveOfThisMachine: packages of a directory that a site names by file: are resolved
// and copied, however it is spelled.
func TestArchiveOfThisMachine(t *testing.T) {
	a := newArchive(t)
	a.add("app", "1:2.0~rc1")
	for _, scheme := range []string{"file://", "file:"} {
		s, err := Open(t.Context(), t.TempDir(), "amd64", []Archive{{ID: "test", URI: scheme + a.dir, Suites: []string{"./"}, Trusted: true}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Update(t.Context()); err != nil {
			t.Fatal(err)
		}
		debs, err := s.Resolve(t.Context(), Request{Install: []string{"app"}})
		if err != nil {
			t.Fatalf("%s: %v", scheme, err)
		}
		store := &Store{Dir: t.TempDir()}
		if err := store.Fetch(t.Context(), s, debs, func(Fetched) {}); err != nil {
			t.Fatalf("%s: %v", scheme, err)
		}
		err = filepath.WalkDir(store.Dir, func(name string, e os.DirEntry, err error) error {
			if err == nil && !e.IsDir() && !e.Type().IsRegular() {
				t.Errorf("%s: %s is a link to the archive", scheme, name)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func names(debs []Deb) []string {
	var all []string
	for _, d := range debs {
		all = append(all, d.Name+"="+d.Version)
	}
	slices.Sort(all)
	return all
}

func TestResolve(t *testing.T) {
	a := newArchive(t)
	a.add("app", "1.0", "Depends: lib (>= 1)")
	a.add("app", "2:2.0", "Depends: lib (>= 2), base")
	a.add("lib", "1.0")
	a.add("lib", "2.0")
	a.add("base", "1.0")
	a.add("extra", "1.0")
	a.add("loud", "1.0", "Recommends: extra")
	a.add("broken", "1.0", "Depends: lib (>= 9)")
	a.add("chooser", "1.0", "Depends: extra | base")
	s := a.updated()
	base := func() []Deb {
		debs, err := s.Resolve(context.Background(), Request{Install: []string{"base"}})
		if err != nil {
			t.Fatal(err)
		}
		return debs
	}()
	lib2, err := s.Resolve(context.Background(), Request{Install: []string{"lib"}})
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name   string
		ask    Request
		want   []string
		reason string
	}{
		{"newest and what it needs", Request{Install: []string{"app"}}, []string{"app=2:2.0", "base=1.0", "lib=2.0"}, ""},
		{"what is there is not fetched", Request{Install: []string{"app"}, Installed: base}, []string{"app=2:2.0", "lib=2.0"}, ""},
		{"a version", Request{Install: []string{"app=1.0"}}, []string{"app=1.0", "lib=2.0"}, ""},
		{"no recommends", Request{Install: []string{"loud"}}, []string{"loud=1.0"}, ""},
		{"recommends", Request{Install: []string{"loud"}, Recommends: true}, []string{"extra=1.0", "loud=1.0"}, ""},
		{"never, by another way", Request{Install: []string{"chooser"}, Never: []string{"extra", "not-in-any-index"}}, []string{"base=1.0", "chooser=1.0"}, ""},
		{"downgrade", Request{Install: []string{"lib=1.0"}, Installed: lib2, AllowDowngrade: true}, []string{"lib=1.0"}, ""},
		{"downgrade refused", Request{Install: []string{"lib=1.0"}, Installed: lib2}, nil, "downgraded"},
		{"unknown package", Request{Install: []string{"nothing"}}, nil, "package nothing is in no archive"},
		{"unknown version", Request{Install: []string{"lib=7"}}, nil, "package lib has no version 7 in the archives"},
		{"conflict", Request{Install: []string{"broken"}}, nil, "broken : Depends: lib (>= 9)"},
		{"never, but needed", Request{Install: []string{"app=1.0"}, Never: []string{"lib"}}, nil, "lib"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := s.Resolve(context.Background(), test.ask)
			if test.reason != "" {
				if err == nil || !strings.Contains(err.Error(), test.reason) {
					t.Fatalf("got %v, %v; want an error with %q", names(got), err, test.reason)
				}
				if n := len(err.Error()); n > 600 {
					t.Errorf("the error has %d bytes: a log, not reasons", n)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(names(got), test.want) {
				t.Errorf("got %v, want %v", names(got), test.want)
			}
		})
	}
}

// TestFromARelease: a package comes from a release with what it needs from there, although
// that release is asked for nothing else.
func TestFromARelease(t *testing.T) {
	a, b := newArchive(t), newArchive(t)
	b.release = "Suite: test-backports\nCodename: test-backports\nNotAutomatic: yes\nButAutomaticUpgrades: yes\n"
	a.add("systemd", "252", "Depends: shared (= 252), lib")
	a.add("shared", "252")
	a.add("lib", "1")
	b.add("systemd", "254~bpo12", "Depends: shared (= 254~bpo12), lib")
	b.add("shared", "254~bpo12")
	b.add("lib", "2~bpo12")
	s, err := Open(t.Context(), t.TempDir(), "amd64", []Archive{{ID: "a", URI: "copy:" + a.dir, Suites: []string{"./"}, Trusted: true},
		{ID: "b", URI: "copy:" + b.dir, Suites: []string{"./"}, Trusted: true}})
	if err == nil {
		err = s.Update(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for ask, want := range map[string]string{
		"systemd":                "[lib=1 shared=252 systemd=252]",
		"systemd/test-backports": "[lib=1 shared=254~bpo12 systemd=254~bpo12]",
		"systemd/other":          "package systemd is in no release other of the archives",
		"nothing/test-backports": "package nothing is in no archive",
	} {
		debs, err := s.Resolve(t.Context(), Request{Install: []string{ask}})
		if got := fmt.Sprint(names(debs)); got != want && (err == nil || err.Error() != want) {
			t.Errorf("%s: %s, %v; want %s", ask, got, err, want)
		}
	}
}

// What is not there is named with what is.
func TestUnknown(t *testing.T) {
	a := newArchive(t)
	a.add("chrony", "1.0")
	a.add("chrony", "2.0")
	s := a.updated()
	for ask, want := range map[string]*Unknown{
		"chronny":     {Package: "chronny", Near: "chrony"},
		"chronny=1":   {Package: "chronny", Version: "1", Near: "chrony"},
		"chrony=1.1":  {Package: "chrony", Version: "1.1", Versions: []string{"2.0", "1.0"}},
		"frobnicator": {Package: "frobnicator"},
	} {
		_, err := s.Resolve(context.Background(), Request{Install: []string{"chrony", ask}})
		var got *Unknown
		if !errors.As(err, &got) {
			t.Errorf("%s: %v", ask, err)
		} else if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", ask, d)
		}
	}
	if got := (&Unknown{Package: "x", Version: "1", Versions: []string{"2.0", "1.0"}}).Hint(); got != "there is 2.0, 1.0" {
		t.Errorf("hint %q", got)
	}
}

// A suite that an archive does not have is named in one line.
func TestNoSuite(t *testing.T) {
	a := newArchive(t)
	s, err := Open(context.Background(), t.TempDir(), "amd64", []Archive{{ID: "test", URI: "file:" + a.dir, Suites: []string{"trixy"}, Components: []string{"main"}}})
	if err != nil {
		t.Fatal(err)
	}
	var none *NoSuite
	if err := s.Update(context.Background()); !errors.As(err, &none) || none.Suite != "trixy" || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func TestUpgrade(t *testing.T) {
	a := newArchive(t)
	a.add("lib", "1.0")
	a.add("pinned", "1.0")
	s := a.updated()
	old, err := s.Resolve(context.Background(), Request{Install: []string{"lib", "pinned"}})
	if err != nil {
		t.Fatal(err)
	}
	a.add("lib", "2.0")
	a.add("pinned", "2.0")
	if err := s.Update(context.Background()); err != nil {
		t.Fatal(err)
	}
	got, err := s.Resolve(context.Background(), Request{Upgrade: true, Install: []string{"pinned=1.0"}, Hold: []string{"pinned"}, Installed: old})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"lib=2.0"}; !slices.Equal(names(got), want) {
		t.Errorf("upgrade fetches %v, want %v: what is pinned stays", names(got), want)
	}
}

// A mirror forgets a version: the build says which and what there is instead,
// and goes on when the file was kept.
func TestFetchGone(t *testing.T) {
	a := newArchive(t)
	a.add("lib", "1.0")
	s := a.updated()
	debs, err := s.Resolve(context.Background(), Request{Install: []string{"lib"}})
	if err != nil {
		t.Fatal(err)
	}
	kept := t.TempDir()
	data, err := os.ReadFile(filepath.Join(a.dir, "lib_1.0_all.deb"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(kept, "lib_1.0_all.deb"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	a.add("lib", "1.1")
	a.drop("lib", "1.0")

	store := &Store{Dir: t.TempDir()}
	none := func(Fetched) {}
	err = store.Fetch(context.Background(), s, debs, none)
	var gone *Gone
	if !errors.As(err, &gone) || gone.Now != "1.1" || gone.Deb.Version != "1.0" {
		t.Fatalf("got %v, want that lib 1.0 is gone and 1.1 is there", err)
	}
	if left, _ := filepath.Glob(filepath.Join(store.Dir, "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	store.Kept = []string{kept}
	if err := store.Fetch(context.Background(), s, debs, none); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(store.Path(debs[0]))
	if err != nil || string(got) != string(data) {
		t.Errorf("the kept file did not arrive: %v", err)
	}
	if err := os.WriteFile(filepath.Join(kept, "lib_1.0_all.deb"), []byte("else"), 0o644); err != nil {
		t.Fatal(err)
	}
	store.Dir = t.TempDir()
	if err := store.Fetch(context.Background(), s, debs, none); err == nil || !strings.Contains(err.Error(), "sha256") {
		t.Errorf("a kept file with other content: got %v, want its sha256 refused", err)
	}
}

// TestNotSigned: a lock is signed by nobody. What it names is taken from an archive or a kept
// directory only where an index that apt verifies now has the file, or somebody names the package.
func TestNotSigned(t *testing.T) {
	a := newArchive(t)
	a.add("app", "1")
	a.add("lib", "1")
	s := a.updated()
	debs, err := s.Resolve(t.Context(), Request{Install: []string{"app", "lib"}})
	if err != nil {
		t.Fatal(err)
	}
	// Another's file lies in the archive, and in a directory, and the lock names it.
	his, kept := filepath.Join(a.dir, "his.deb"), t.TempDir()
	data, err := os.ReadFile(filepath.Join(a.dir, debs[1].FileName()))
	if err != nil {
		t.Fatal(err)
	}
	tree := t.TempDir()
	if said, err := exec.Command("sh", "-ec", "mkdir $0/DEBIAN; dpkg-deb --field $1 >$0/DEBIAN/control; echo his >$0/his; dpkg-deb --root-owner-group --build $0 $2", tree, filepath.Join(a.dir, debs[1].FileName()), his).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	forged, err := os.ReadFile(his)
	if err != nil || string(forged) == string(data) {
		t.Fatal(err)
	}
	lock := slices.Clone(debs)
	lock[1].SHA256, lock[1].Size, lock[1].Path = fmt.Sprintf("%x", sha256.Sum256(forged)), int64(len(forged)), "his.deb"
	fetch := func(st *State, x *Store, want []Deb) error {
		t.Helper()
		x.Dir = t.TempDir()
		err := x.Fetch(t.Context(), st, want, func(Fetched) {})
		if taken, _ := filepath.Glob(filepath.Join(x.Dir, lock[1].SHA256+"*")); err != nil && taken != nil {
			t.Errorf("it is in the store: %q", taken)
		}
		return err
	}
	refused := func(err error) {
		t.Helper()
		var not *NotSigned
		if !errors.As(err, &not) || not.Deb.Name != lock[1].Name || !strings.Contains(not.Hint(), "--unsigned "+lock[1].Name) {
			t.Errorf("%v", err)
		}
	}
	fresh := func() *State { return a.state(true) } // no index was read yet
	if err := fetch(fresh(), &Store{Signed: true}, debs); err != nil {
		t.Errorf("what the archive has: %v", err)
	}
	refused(fetch(fresh(), &Store{Signed: true}, lock))
	refused(fetch(s, &Store{Signed: true, Unsigned: []string{lock[0].Name}}, lock))
	if err := os.Rename(his, filepath.Join(kept, lock[1].FileName())); err != nil {
		t.Fatal(err)
	}
	refused(fetch(fresh(), &Store{Signed: true, Kept: []string{kept}}, lock))
	for _, named := range []string{lock[1].Name, AnyPackage} {
		if err := fetch(fresh(), &Store{Signed: true, Kept: []string{kept}, Unsigned: []string{named}}, lock); err != nil {
			t.Errorf("named as %s: %v", named, err)
		}
	}
	if err := fetch(s, &Store{Kept: []string{kept}}, lock); err != nil {
		t.Errorf("what was just resolved: %v", err)
	}
	// Nobody can be asked: it fails closed, with what goes on.
	if err := os.Remove(filepath.Join(a.dir, "Packages")); err != nil {
		t.Fatal(err)
	}
	var mend interface{ Hint() string }
	if err := fetch(fresh(), &Store{Signed: true, Kept: []string{kept}}, lock[1:]); !errors.As(err, &mend) || !strings.Contains(err.Error(), "see whether an archive signed") {
		t.Errorf("without an index: %v", err)
	}
}

// TestReleasesNameTheirArchive: the lock says of each signed index whose it is.
func TestReleasesNameTheirArchive(t *testing.T) {
	s := &State{archives: []Archive{
		{ID: "debian", URI: "http://deb.example.org/debian/", Suites: []string{"trixie", "trixie-updates"}},
		{ID: "own", URI: "copy:///srv/apt", Suites: []string{"d"}},
		{ID: "flat", URI: "copy:/srv/flat", Suites: []string{"./"}}}}
	for list, want := range map[string]string{"deb.example.org_debian_dists_trixie_InRelease": "debian", "deb.example.org_debian_dists_trixie-updates_InRelease": "debian",
		"_srv_apt_dists_d_Release": "own", "_srv_flat_._Release": "flat", "elsewhere.org_debian_dists_trixie_InRelease": ""} {
		if got := s.archiveOf(list).ID; got != want {
			t.Errorf("%s is of %q, want %q", list, got, want)
		}
	}
}

func TestFetchAltered(t *testing.T) {
	a := newArchive(t)
	a.add("lib", "1.0")
	s := a.updated()
	debs, err := s.Resolve(context.Background(), Request{Install: []string{"lib"}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(a.dir, "lib_1.0_all.deb")
	for what, change := range map[string]func() error{
		"cut": func() error { return os.Truncate(file, 100) },
		"another of the same size": func() error {
			return os.WriteFile(file, make([]byte, debs[0].Size), 0o644)
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		store := &Store{Dir: t.TempDir()}
		if err := store.Fetch(context.Background(), s, debs, func(Fetched) {}); err == nil {
			t.Errorf("%s: the file was taken", what)
		}
		if left, _ := filepath.Glob(filepath.Join(store.Dir, "*")); len(left) != 0 {
			t.Errorf("%s: left behind: %v", what, left)
		}
	}
}

func TestUnsignedArchive(t *testing.T) {
	a := newArchive(t)
	a.add("lib", "1.0")
	err := a.state(false).Update(context.Background())
	if err == nil || !strings.Contains(err.Error(), "is not signed") {
		t.Errorf("got %v, want that the archive is not signed", err)
	}
}

// The flat repository that steps install from holds what it was given and
// apt agrees with its index.
func TestRepo(t *testing.T) {
	a := newArchive(t)
	a.add("lib", "2:1.0~rc1")
	a.add("other", "1.0")
	s := a.updated()
	debs, err := s.Resolve(context.Background(), Request{Install: []string{"lib"}})
	if err != nil {
		t.Fatal(err)
	}
	store := &Store{Dir: t.TempDir()}
	if err := store.Fetch(context.Background(), s, debs, func(Fetched) {}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := store.Repo(dir, "test", debs); err != nil {
		t.Fatal(err)
	}
	flat, err := Open(context.Background(), t.TempDir(), "amd64", []Archive{{ID: "flat", URI: "copy:" + dir, Suites: []string{"./"}, Trusted: true}})
	if err != nil {
		t.Fatal(err)
	}
	if err := flat.Update(context.Background()); err != nil {
		t.Fatal(err)
	}
	again, err := flat.Resolve(context.Background(), Request{Install: []string{"lib"}})
	if err != nil {
		t.Fatal(err)
	}
	if len(again) != 1 || again[0].SHA256 != debs[0].SHA256 {
		t.Errorf("the repository offers %v, want %v", again, debs)
	}
	if _, err := flat.Resolve(context.Background(), Request{Install: []string{"other"}}); err == nil {
		t.Error("the repository offers what was not put in")
	}
}

// TestRowsOfALock: a lock may come from anybody. What it says of a package forges no other one in the
// repository that steps install from, and leads to no file elsewhere.
func TestRowsOfALock(t *testing.T) {
	a := newArchive(t)
	a.add("lib", "1.0")
	s := a.updated()
	debs, err := s.Resolve(t.Context(), Request{Install: []string{"lib"}})
	if err != nil {
		t.Fatal(err)
	}
	store := &Store{Dir: t.TempDir()}
	if err := store.Fetch(t.Context(), s, debs, func(Fetched) {}); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func(*Deb){
		"a file elsewhere":     func(d *Deb) { d.Name = "../../lib" },
		"another file":         func(d *Deb) { d.Version = "1.0\nFilename: ../../site/lib.deb\nX: " },
		"another package":      func(d *Deb) { d.Arch = "all.deb\n\nPackage: openssl\nVersion: 9\nFilename: lib.deb\nX: " },
		"no name":              func(d *Deb) { d.Name = "" },
		"a sum with a path":    func(d *Deb) { d.SHA256 = "../" + d.SHA256 },
		"a size without bound": func(d *Deb) { d.Size = 0 },
	} {
		d := debs[0]
		change(&d)
		if err := store.Fetch(t.Context(), s, []Deb{d}, func(Fetched) {}); err == nil || !strings.Contains(err.Error(), "sha256 is none") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestHostMirror(t *testing.T) {
	const release = "ID=debian\nVERSION_CODENAME=\"bookworm\"\n"
	tests := []struct {
		name, file, text string
		mirror, security string
	}{
		{"one-line", "sources.list", "# comment\ndeb [arch=amd64 signed-by=/k] http://m.example.org/debian bookworm main\ndeb-src http://no.example.org/ bookworm main\n" +
			"deb http://s.example.org/sec bookworm-security main\n", "http://m.example.org/debian", "http://s.example.org/sec"},
		{"deb822", "sources.list.d/debian.sources", "Types: deb deb-src\n# http://comment.example.org bookworm\nURIs: http://m.example.org/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\n" +
			"Types: deb\nURIs: http://s.example.org/sec\nSuites: bookworm-security\nComponents: main\n", "http://m.example.org/debian", "http://s.example.org/sec"},
		{"disabled", "sources.list.d/debian.sources", "Enabled: no\nTypes: deb\nURIs: http://m.example.org/debian\nSuites: bookworm\nComponents: main\n", "", ""},
		{"only a third party", "sources.list.d/other.list", "deb http://o.example.org stable main\n", "", ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range map[string]string{"etc/os-release": release, "etc/apt/" + test.file: test.text} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			mirror, security, err := hostMirror(root)
			if mirror != test.mirror || security != test.security || (err == nil) != (test.mirror != "") {
				t.Errorf("got %q, %q, %v; want %q, %q", mirror, security, err, test.mirror, test.security)
			}
		})
	}
}

func TestRepositories(t *testing.T) {
	const key = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nxx\n-----END PGP PUBLIC KEY BLOCK-----\n"
	good := spec.Repository{ID: "own", URL: "https://apt.example.org/x", Distributions: []string{"d"}, Components: []string{"main"}, Subrepos: []string{"updates"}, Key: key}
	dir := t.TempDir()
	got, err := Repositories([]spec.Repository{good}, dir)
	if err != nil || len(got) != 1 || !slices.Equal(got[0].Suites, []string{"d", "d-updates"}) || got[0].Keyring != filepath.Join(dir, "233c27dc9ea7bad5.asc") {
		t.Errorf("got %+v, %v", got, err)
	}
	for what, change := range map[string]func(*spec.Repository){
		"a path as id":         func(r *spec.Repository) { r.ID = "../x" },
		"an option in the url": func(r *spec.Repository) { r.URL = "https://x [trusted=yes]" },
		"two lines":            func(r *spec.Repository) { r.Components = []string{"main\ndeb x"} },
		"no distributions":     func(r *spec.Repository) { r.Distributions = nil },
		"a key that is none":   func(r *spec.Repository) { r.Key = "AAAA" },
	} {
		bad := good
		change(&bad)
		if err := Check(nil, []spec.Repository{bad}); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if err := Check(nil, []spec.Repository{good}); err != nil {
		t.Error(err)
	}
	for what, bad := range map[string]spec.Debian{
		"no suite":             {},
		"a component of two":   {Suite: "trixie", Components: []string{"main contrib"}},
		"a mirror of two":      {Suite: "trixie", Mirror: "http://a.example.org\ndeb http://b.example.org"},
		"an option in the url": {Suite: "trixie", Mirror: "http://a.example.org", Security: "http://b.example.org [trusted=yes]"},
	} {
		if err := Check(&bad, nil); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
}

func TestParseRelease(t *testing.T) {
	text := "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\nOrigin: Debian\nSuite: stable\nCodename: trixie\nDate: Sat, 15 Nov 2026 10:20:30 UTC\n-----BEGIN PGP SIGNATURE-----\n\nx\n-----END PGP SIGNATURE-----\n"
	sum := sha256.Sum256([]byte(text))
	got, err := parseRelease([]byte(text))
	want := Release{Suite: "trixie", Origin: "Debian", Date: "2026-11-15T10:20:30Z", SHA256: hex.EncodeToString(sum[:])}
	if err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if _, err := parseRelease([]byte("Suite: x\nDate: yesterday\n")); err == nil {
		t.Error("a Release without a date was taken")
	}
}

func FuzzStanzas(f *testing.F) {
	f.Add("Package: a\nDepends: b,\n c\n\nPackage: d\n")
	f.Add(" x\n# c\n:\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, s := range Stanzas(text) {
			if s.Text == "" {
				t.Errorf("an empty stanza from %q", text)
			}
			s.Get("Package")
		}
	})
}

func TestMain(m *testing.M) {
	root.Enter()
	os.Exit(m.Run())
}
