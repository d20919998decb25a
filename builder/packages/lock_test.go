// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/builder/apt"
)

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
	if _, err := future.BaseEpoch(); err == nil {
		t.Error("a base from after the newest release")
	}
}

// TestCompareKeys: an archive's keys are other ones where none of them is the lock's.
func TestCompareKeys(t *testing.T) {
	by := func(keys ...string) Lock {
		return Lock{SignedBy: apt.Signers{{Archive: "debian", Keys: keys}}}
	}
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
