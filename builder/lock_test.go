// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// A build from a lock makes what the lock says, or nothing.
func TestLock(t *testing.T) {
	o := testOptions(t)
	recipe := testRecipe()
	recipe.Packages.Install = []spec.Package{{Name: "jq"}}
	var err error
	if o.Ledger, err = Settle([]spec.Recipe{recipe}, nil); err != nil {
		t.Fatal(err)
	}
	first, err := Build(context.Background(), recipe, "default", "1", o)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "caisson.lock")
	file := LockFile{APIVersion: spec.APIVersion, Kind: LockKind, Variants: map[string]Lock{"default": first.Lock}}
	if err := file.Write(name); err != nil {
		t.Fatal(err)
	}
	read, err := ReadLock(name)
	if err != nil {
		t.Fatal(err)
	}
	locked := read.Variants["default"]
	build := func(recipe spec.Recipe, l Lock) (*Result, error) {
		o := o
		o.Lock = &l
		return Build(context.Background(), recipe, "default", "1", o)
	}
	again, err := build(recipe, locked)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := fmt.Sprint(first.Blobs), fmt.Sprint(again.Blobs); a != b {
		t.Errorf("from the lock came %s, want %s", b, a)
	}

	other := recipe
	other.Packages.Install = []spec.Package{{Name: "tree"}}
	var hint interface{ Hint() string }
	if _, err := build(other, locked); !errors.As(err, &hint) || !strings.Contains(hint.Hint(), "lock --update") {
		t.Errorf("a lock of another recipe: %v", err)
	}

	less := locked
	less.Packages = slices.DeleteFunc(slices.Clone(locked.Packages), func(d apt.Deb) bool { return d.Name == "libjq1" })
	if _, err := build(recipe, less); err == nil || !strings.Contains(err.Error(), "libjq1") {
		t.Errorf("a lock without something that is needed: %v", err)
	}
	more := locked
	tree := testRecipe()
	with, err := Build(context.Background(), tree, "default", "1", o)
	if err != nil {
		t.Fatal(err)
	}
	more.Packages = append(slices.Clone(locked.Packages), with.Lock.Packages...)
	if _, err := build(recipe, more); err == nil || !strings.Contains(err.Error(), "tree") {
		t.Errorf("a lock with something that is not needed: %v", err)
	}
	both := recipe
	both.Packages.Install = append(slices.Clone(recipe.Packages.Install), tree.Packages.Install...)
	if r, err := build(both, locked.With(with.Lock, []string{"tree"}, both)); err != nil || !r.Lock.Has(r.Layer.Packages) || locked.Has(r.Layer.Packages) {
		t.Errorf("a lock with a package of another one: %v", err)
	}
	if _, err := build(recipe, with.Lock.With(locked, []string{"jq"}, recipe)); err == nil || !strings.Contains(err.Error(), "libjq1") {
		t.Errorf("a package of another lock without what it needs: %v", err)
	}
	undated := locked
	undated.Releases = nil
	if _, err := build(recipe, undated); err == nil {
		t.Error("a lock without a date was used")
	}
}

func TestReadLock(t *testing.T) {
	dir := t.TempDir()
	if l, err := ReadLock(filepath.Join(dir, "none")); l != nil || err != nil {
		t.Errorf("no lock: %v, %v", l, err)
	}
	for what, text := range map[string]string{"nothing": "", "cut": `{"kind":"LayerLock"`, "another kind": `{"kind":"Site"}`, "unknown key": `{"kind":"LayerLock","x":1}`} {
		name := filepath.Join(dir, "lock")
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadLock(name); err == nil {
			t.Errorf("%s: taken", what)
		}
	}
}

func TestCompareLocks(t *testing.T) {
	deb := func(name, version string, size int64) apt.Deb {
		return apt.Deb{Name: name, Version: version, Size: size, SHA256: name + version}
	}
	old := Lock{Base: []apt.Deb{deb("same", "1", 10), deb("up", "1", 10), deb("gone", "1", 10), deb("shadowed", "1", 10)}, Packages: []apt.Deb{deb("shadowed", "2", 20)}}
	new := Lock{Base: []apt.Deb{deb("same", "1", 10), deb("up", "2", 15), deb("shadowed", "1", 10)}, Packages: []apt.Deb{deb("new", "1", 7), deb("shadowed", "2", 20)},
		Tools: []apt.Deb{deb("tool", "1", 3)}}
	got := fmt.Sprint(CompareLocks(old, new))
	if want := "[{gone 1  -10} {new  1 7} {tool  1 3} {up 1 2 5}]"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A new date alone changes nothing; a new package leaves the base its date.
func TestFollow(t *testing.T) {
	release := func(date string) []apt.Release { return []apt.Release{{Suite: "s", Date: date}} }
	one, two := apt.Deb{SHA256: "1"}, apt.Deb{SHA256: "2"}
	old := Lock{Recipe: "r", Releases: release("2026-01-01T00:00:00Z"), BaseDate: "2025-12-01T00:00:00Z", Base: []apt.Deb{one}, Packages: []apt.Deb{two}}
	tests := []struct {
		name           string
		new            Lock
		base, released string
	}{
		{"nothing", Lock{Recipe: "r", Base: []apt.Deb{one}, Packages: []apt.Deb{two}}, "2025-12-01T00:00:00Z", "2026-01-01T00:00:00Z"},
		{"packages", Lock{Recipe: "r", Base: []apt.Deb{one}}, "2025-12-01T00:00:00Z", "2026-02-01T00:00:00Z"},
		{"the recipe", Lock{Recipe: "x", Base: []apt.Deb{one}, Packages: []apt.Deb{two}}, "2025-12-01T00:00:00Z", "2026-02-01T00:00:00Z"},
		{"the base", Lock{Recipe: "r", Base: []apt.Deb{two}, Packages: []apt.Deb{two}}, "2026-02-01T00:00:00Z", "2026-02-01T00:00:00Z"},
	}
	for _, test := range tests {
		l := test.new
		l.Releases, l.BaseDate = release("2026-02-01T00:00:00Z"), "2026-02-01T00:00:00Z"
		l.Follow(old)
		if l.BaseDate != test.base || l.Releases[0].Date != test.released {
			t.Errorf("%s changed: base %s, releases %s; want %s, %s", test.name, l.BaseDate, l.Releases[0].Date, test.base, test.released)
		}
	}
	variant := Lock{Recipe: "v", Releases: release("2026-02-01T00:00:00Z"), BaseDate: "2026-02-01T00:00:00Z", Base: []apt.Deb{one}}
	if variant.Follow(Lock{}, old); variant.BaseDate != old.BaseDate {
		t.Errorf("a new variant has a base of its own date, %s", variant.BaseDate)
	}
	future := old
	future.BaseDate = "2027-01-01T00:00:00Z"
	if _, err := future.baseEpoch(); err == nil {
		t.Error("a base from after the newest release")
	}
}

// A variant that has no lock is held to another's for the same packages, and to no other.
func TestSharedLock(t *testing.T) {
	b := &build{recipe: testRecipe()}
	file := &LockFile{Variants: map[string]Lock{"default": {Recipe: b.lockKey(), BaseDate: "its"}, "other": {Recipe: "x"}}}
	b.options.Lock, b.options.Shared = file.For("new")
	if err := b.locked(); err != nil || b.chosen.BaseDate != "its" {
		t.Errorf("chose %+v, %v", b.chosen, err)
	}
	b.recipe.Accounts.Users = append(b.recipe.Accounts.Users, spec.User{Name: "kim"})
	if err := b.locked(); err != nil {
		t.Errorf("another user: %v", err)
	}
	b.recipe.Packages.Install = append(b.recipe.Packages.Install, spec.Package{Name: "jq"})
	if err := b.locked(); err == nil {
		t.Error("a package that no lock was made for")
	}
	if own, others := (*LockFile)(nil).For("default"); own != nil || others != nil {
		t.Errorf("without a file: %v %v", own, others)
	}
}

// TestCompareKeys: an archive's keys are other ones where none of them is the lock's.
func TestCompareKeys(t *testing.T) {
	by := func(keys ...string) Lock { return Lock{SignedBy: apt.Signers{{Archive: "debian", Keys: keys}}} }
	for _, c := range []struct {
		old, new Lock
		changes  int
	}{{by("A"), by("B"), 1}, {by("A", "B"), by("B", "C"), 0}, {Lock{}, by("A"), 0}, {by("A"), Lock{}, 0}} {
		if got := CompareKeys(c.old, c.new); len(got) != c.changes {
			t.Errorf("%v to %v: %v", c.old.SignedBy, c.new.SignedBy, got)
		}
	}
	kept := by("A")
	kept.Recipe, kept.Releases, kept.BaseDate = "r", []apt.Release{{Suite: "s", Date: "2026-01-01T00:00:00Z"}}, "2026-01-01T00:00:00Z"
	l := by("B")
	l.Recipe = "r"
	if l.Follow(kept); len(l.Releases) != 1 || l.SignedBy.Of("debian")[0] != "B" {
		t.Errorf("nothing but the key changed: %+v", l)
	}
}

// TestOrigins: a step of the cache is another one where its package files are from another archive, of another
// signer, or were taken without a question.
func TestOrigins(t *testing.T) {
	key := func(archive, signer string, locked bool, unsigned ...string) string {
		b := &build{recipe: testRecipe(), options: Options{Unsigned: unsigned}}
		b.chosen = Lock{Packages: []apt.Deb{{Name: "jq", SHA256: "1", Archive: archive}}, SignedBy: apt.Signers{{Archive: archive, Keys: []string{signer}}}}
		if locked {
			b.options.Lock = &b.chosen
		}
		inputs, err := packagesInputs(b)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(inputs)
	}
	is := key("debian", "A", true)
	for what, other := range map[string]string{"of another archive": key("own", "A", true), "of another signer": key("debian", "B", true),
		"unsigned": key("debian", "A", true, "jq"), "all unsigned": key("debian", "A", true, apt.AnyPackage)} {
		if other == is {
			t.Errorf("the step of a package %s is the same", what)
		}
	}
	if key("debian", "A", false, "jq") != is || key("debian", "A", true, "tree") != is {
		t.Error("the step of a build without a lock, or of one that waives another package, is another one")
	}
}

// TestLockGolden: caisson.lock of 0.10.0 is read, and written byte-equal.
func TestLockGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/caisson.lock", Page: "../docs/formats/site-files.md", New: new(LockFile), Refused: true,
		Sample: golden.Head(spec.APIVersion, LockKind),
		Types:  []reflect.Type{reflect.TypeFor[LockFile](), reflect.TypeFor[Lock](), reflect.TypeFor[apt.Release](), reflect.TypeFor[apt.Signer](), reflect.TypeFor[apt.Deb]()},
	}.InFile(t, func(name string, v any) error { return v.(*LockFile).Write(name) },
		func(name string) (any, error) { return ReadLock(name) }))
	// One of before releases named their archives.
	const before = "testdata/golden/caisson.0.9.0.lock"
	want, err := os.ReadFile(before)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ReadLock(before)
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "caisson.lock")
	if err := l.Write(again); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(again); err != nil || !bytes.Equal(got, want) {
		t.Errorf("a lock of 0.9.0 is written otherwise: %v\n%s", err, got)
	}
}
