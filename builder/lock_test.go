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
	"github.com/caisson-os/caisson/builder/packages"
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
	file := packages.LockFile{APIVersion: spec.APIVersion, Kind: packages.LockKind, Variants: map[string]packages.Lock{"default": first.Lock}}
	if err := file.Write(name); err != nil {
		t.Fatal(err)
	}
	read, err := packages.ReadLock(name)
	if err != nil {
		t.Fatal(err)
	}
	locked := read.Variants["default"]
	build := func(recipe spec.Recipe, l packages.Lock) (*Result, error) {
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

// A variant that has no lock is held to another's for the same packages, and to no other.
func TestSharedLock(t *testing.T) {
	b := &build{recipe: testRecipe()}
	file := &packages.LockFile{Variants: map[string]packages.Lock{"default": {Recipe: b.lockKey(), BaseDate: "its"}, "other": {Recipe: "x"}}}
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
	if own, others := (*packages.LockFile)(nil).For("default"); own != nil || others != nil {
		t.Errorf("without a file: %v %v", own, others)
	}
}

// TestOrigins: a step of the cache is another one where its package files are from another archive, of another
// signer, or were taken without a question.
func TestOrigins(t *testing.T) {
	key := func(archive, signer string, locked bool, unsigned ...string) string {
		b := &build{recipe: testRecipe(), options: Options{Unsigned: unsigned}}
		b.chosen = packages.Lock{Packages: []apt.Deb{{Name: "jq", SHA256: "1", Archive: archive}}, SignedBy: apt.Signers{{Archive: archive, Keys: []string{signer}}}}
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
	golden.Check(t, golden.Document{File: "testdata/golden/caisson.lock", Page: "../docs/formats/site-files.md", New: new(packages.LockFile), Refused: true,
		Sample: golden.Head(spec.APIVersion, packages.LockKind),
		Types:  []reflect.Type{reflect.TypeFor[packages.LockFile](), reflect.TypeFor[packages.Lock](), reflect.TypeFor[apt.Release](), reflect.TypeFor[apt.Signer](), reflect.TypeFor[apt.Deb]()},
	}.InFile(t, func(name string, v any) error { return v.(*packages.LockFile).Write(name) },
		func(name string) (any, error) { return packages.ReadLock(name) }))
	// One of before releases named their archives.
	const before = "testdata/golden/caisson.0.9.0.lock"
	want, err := os.ReadFile(before)
	if err != nil {
		t.Fatal(err)
	}
	l, err := packages.ReadLock(before)
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
