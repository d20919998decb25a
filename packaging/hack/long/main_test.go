// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/require"
)

var modules = []string{".", "kube"}

// TestParts holds that each long test is in one part, that no part is too long, and that the
// table knows no test that is gone.
func TestParts(t *testing.T) {
	t.Chdir("../../..")
	rows, err := known()
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range modules {
		all, err := find(module)
		if err != nil {
			t.Fatal(err)
		}
		n, err := least(all)
		if err != nil {
			t.Fatal(err)
		}
		in := map[test]int{}
		for i, p := range parts(all, n) {
			if total(p) > 40*time.Minute {
				t.Errorf("part %d/%d of %s takes %s", i+1, n, module, total(p))
			}
			for _, one := range p {
				in[one]++
			}
		}
		for _, one := range all {
			if in[one] != 1 {
				t.Errorf("%s is in %d parts", one, in[one])
			}
			if !strings.Contains(one.name, "Long") && one.name != fuzz {
				t.Errorf("%s begins with require.Long, and has not Long in its name", one)
			}
			delete(rows, one.String())
		}
		if len(in) != len(all) {
			t.Errorf("%d of %d tests of %s are in parts", len(in), len(all), module)
		}
		other := slices.Clone(all)
		rand.Shuffle(len(other), func(i, j int) { other[i], other[j] = other[j], other[i] })
		if !reflect.DeepEqual(parts(other, n), parts(all, n)) {
			t.Errorf("the parts of %s depend on the order in which tests were found", module)
		}
	}
	for name := range rows {
		t.Errorf("times.txt has %s, which is not there", name)
	}
}

// TestEachLongTestIsFound: as many are found as the text has.
func TestEachLongTestIsFound(t *testing.T) {
	t.Chdir("../../..")
	out, err := exec.CommandContext(t.Context(), "git", "grep", "-hE", "^\t+require\\.Long(t)", "--", "*_test.go").Output()
	if err != nil {
		t.Skip("not a checkout of git: ", err)
	}
	want := strings.Count(string(out), "\n") + 1 // fuzz
	got := 0
	for _, module := range modules {
		all, err := find(module)
		if err != nil {
			t.Fatal(err)
		}
		got += len(all)
	}
	if got != want {
		t.Errorf("%d tests are found, want %d", got, want)
	}
}

func TestChoose(t *testing.T) {
	all := []test{{"./a", "TestLong", 30 * time.Minute, false}, {"./b", "TestLong", 20 * time.Minute, false}, {"./b", "TestLonger", unknown, true}}
	for _, row := range []struct {
		part, want, err string
	}{
		{"", "./a TestLong,./b TestLong,./b TestLonger", ""},
		{"1/2", "./a TestLong", ""},
		{"2/2", "./b TestLong,./b TestLonger", ""},
		{"4/5", "", ""},
		{"1/1", "", "there are at least 2, such as 1/2"},
		{"0/2", "", "is not K/N, such as 1/2"},
		{"3/2", "", "is not K/N"},
		{"1/2x", "", "is not K/N"},
		{"1/1000000000", "", "is not K/N"},
		{"-1/2", "", "is not K/N"},
	} {
		chosen, err := choose(all, row.part, 2)
		var names []string
		for _, one := range chosen {
			names = append(names, one.String())
		}
		if got := strings.Join(names, ","); got != row.want || (err == nil) != (row.err == "") || err != nil && !strings.Contains(err.Error(), row.err) {
			t.Errorf("%q: %q, %v; want %q, %q", row.part, got, err, row.want, row.err)
		}
	}
	if n, err := least(append(all, test{"./c", "TestLongest", 41 * time.Minute, false})); err == nil || !strings.Contains(err.Error(), "divide it") {
		t.Errorf("a test of 41 minutes: %d, %v", n, err)
	}
}

// TestRun runs the long tests of a module whole and in parts, and reads what is kept of that.
func TestRun(t *testing.T) {
	require.Slow(t)
	require.Tool(t, "git")
	t.Chdir(t.TempDir())
	t.Setenv("CAISSON_LONG", "1")
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	commit := func() {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "sh", "-c", "git init -q . && git add -A && git -c user.name=a -c user.email=a@example.org commit -qm a").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	head := "package p\n\nimport (\n\t\"testing\"\n\n\t\"example/require\"\n)\n\n"
	write("go.mod", "module example\n\ngo 1.26\n")
	write(".gitignore", "/out/\n")
	write("require/require.go", "package require\n\nfunc Long(any) {}\n")
	write("a/a_test.go", head+"func TestLongWell(t *testing.T) { require.Long(t) }\n\nfunc TestLongWellToo(t *testing.T) { require.Long(t) }\n\nfunc TestNotLong(t *testing.T) { t.Error(\"it is not one\") }\n")
	write("b/b_test.go", head+"func TestLongIll(t *testing.T) { require.Long(t); t.Error(\"it fails\") }\n\nfunc TestLongSkipped(t *testing.T) { require.Long(t); t.Skip() }\n")
	write("c/c_test.go", head+"func TestLongNone(t *testing.T) { require.Long(t); none() }\n")
	write("packaging/hack/fuzz", "#!/bin/sh\n[ $1 = 30s ]\n")
	write("d/d_test.go", "package p\n\nimport \"testing\"\n\nfunc FuzzNothing(f *testing.F) { f.Fuzz(func(*testing.T, []byte) {}) }\n")
	if err := os.Chmod("packaging/hack/fuzz", 0o755); err != nil {
		t.Fatal(err)
	}
	commit()
	results := func() (got []string) {
		t.Helper()
		names, _ := filepath.Glob("out/long/*.txt") // the pattern is right
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				f := strings.Fields(line)
				got = append(got, strings.Join([]string{f[1], f[3], f[4]}, " "))
			}
		}
		slices.Sort(got)
		return got
	}
	want := []string{"fail ./b TestLongIll", "none ./c TestLongNone", "pass ./a TestLongWell", "pass ./a TestLongWellToo", "pass ./packaging/hack fuzz", "skip ./b TestLongSkipped"}
	err := long(t.Context(), ".", "", "out/long", false)
	if err == nil || !strings.Contains(err.Error(), "./b TestLongIll failed") || !strings.Contains(err.Error(), "./c TestLongNone has no result") {
		t.Errorf("it says %v", err)
	}
	if got := results(); !slices.Equal(got, want) {
		t.Errorf("the record has %q, want %q", got, want)
	}
	if err := os.RemoveAll("out"); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"1/3", "2/3", "3/3"} {
		_ = long(t.Context(), ".", part, "out/long", false) // the results tell
	}
	if got := results(); !slices.Equal(got, want) {
		t.Errorf("of three parts the record has %q, want %q", got, want)
	}

	left := func() (names []string) {
		t.Helper()
		all, err := find(".")
		if err != nil {
			t.Fatal(err)
		}
		r, err := open(t.Context(), "out/long")
		if err != nil {
			t.Fatal(err)
		}
		tests, err := r.left(t.Context(), all)
		if err := errors.Join(err, r.file.Close()); err != nil {
			t.Fatal(err)
		}
		for _, one := range tests {
			names = append(names, one.name)
		}
		return names
	}
	write("docs/page.md", "A page.\n")
	commit()
	if got, want := left(), []string{"TestLongIll", "TestLongSkipped", "TestLongNone"}; !slices.Equal(got, want) {
		t.Errorf("with a page changed %q are left, want %q", got, want)
	}
	write("docs.go", "package example\n")
	if got := left(); len(got) != 6 {
		t.Errorf("with what is not committed %q are left, want all", got)
	}
	commit()
	if got := left(); len(got) != 6 {
		t.Errorf("with code changed %q are left, want all", got)
	}
}
