// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
	"github.com/caisson-os/caisson/test/roottest"
)

// TestDiffer: content, mode and being there at all are named, a date is not, and of two images
// the upper one counts.
func TestDiffer(t *testing.T) {
	made := func(random, key string, mode os.FileMode, more map[string]string) *Result {
		r := &Result{trees: []string{t.TempDir(), t.TempDir()}}
		roottest.Put(t, r.trees[0], map[string]string{"etc/below": random, "etc/same": "x", "etc/mode": "x"})
		roottest.Put(t, r.trees[1], map[string]string{"etc/below": "x", "etc/key": key})
		roottest.Put(t, r.trees[1], more)
		if err := os.Chmod(filepath.Join(r.trees[0], "etc/mode"), mode); err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, two := made("1", "1", 0o600, nil), made("2", "2", 0o640, map[string]string{"etc/more": ""})
	if err := os.Chtimes(filepath.Join(one.trees[0], "etc/same"), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]*Result{{one, two}, {two, one}} {
		if got, err := Differ(pair[0], pair[1]); err != nil || !slices.Equal(got, []string{"/etc/key", "/etc/mode", "/etc/more"}) {
			t.Errorf("%q, %v", got, err)
		}
	}
	if got, err := Differ(one, one); err != nil || len(got) > 0 {
		t.Errorf("a layer differs from itself in %q, %v", got, err)
	}
}

// TestAgain: what is made again comes from no cache of the first.
func TestAgain(t *testing.T) {
	step := step{name: "x", inputs: func(*build) (any, error) { return nil, nil }}
	first, err := (&build{}).key(step)
	if err != nil {
		t.Fatal(err)
	}
	if second, err := (&build{options: Options{Again: true}}).key(step); err != nil || first == second {
		t.Errorf("both are %s, %v", second, err)
	}
}

// TestLongTwice: two builds with packages whose scripts ask for the host's name differ in what
// docs/one-machine.md lists, and Differ names that and nothing else.
func TestLongTwice(t *testing.T) {
	require.Long(t)
	o := testOptions(t)
	r := testRecipe()
	r.AppArmor = spec.AppArmor{}
	r.Packages.Install = append(ask("ssl-cert"), spec.Package{Name: "postfix", Debconf: []spec.Debconf{{Question: "postfix/main_mailer_type", Type: "select", Answer: "Local only"}}})
	ledger, err := Settle([]spec.Recipe{r}, nil)
	if err != nil {
		t.Fatal(err)
	}
	o.Ledger = ledger
	lock, err := Resolve(t.Context(), r, o)
	if err != nil {
		t.Fatal(err)
	}
	o.Lock = &lock
	first, err := Build(t.Context(), r, "default", "1", o)
	if err != nil {
		t.Fatal(err)
	}
	o.Again = true
	second, err := Build(t.Context(), r, "default", "1", o)
	if err != nil {
		t.Fatal(err)
	}
	differ, err := Differ(first, second)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("they differ in %q", differ)
	listed := map[string]int{"/etc/ssl/certs/*.0": 0, "/etc/postfix/main.cf": 0, "/etc/aliases.db": 0, "/var/cache/debconf/*.dat": 0}
	for _, name := range differ {
		known := false
		for pattern := range listed {
			if match, _ := path.Match(pattern, name); match { // the patterns are right
				listed[pattern]++
				known = true
			}
		}
		if !known {
			t.Errorf("%s is not listed", name)
		}
	}
	for pattern, n := range listed {
		if n == 0 {
			t.Errorf("%s does not differ", pattern)
		}
	}
}

func TestTrim(t *testing.T) {
	b := &build{options: Options{CacheDir: t.TempDir()}}
	now := time.Now()
	files := map[string]time.Duration{"steps/old/made.json": 40, "steps/new/made.json": 1, "debs/old.deb": 31, "debs/new.deb": 29, "bases/old.tar": 99, "apt/none/lists": 99}
	for name, days := range files {
		at := filepath.Join(b.options.CacheDir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		when := now.Add(-days * 24 * time.Hour)
		if err := os.Chtimes(at, when, when); err != nil {
			t.Fatal(err)
		}
	}
	use(filepath.Join(b.options.CacheDir, "bases/old.tar"))
	if err := b.trim(now.Add(-keepUnused)); err != nil {
		t.Fatal(err)
	}
	gone := map[string]bool{"steps/old/made.json": true, "debs/old.deb": true}
	for name := range files {
		if exists(filepath.Join(b.options.CacheDir, name)) == gone[name] {
			t.Errorf("%s: gone is %v, want %v", name, !gone[name], gone[name])
		}
	}
	if exists(filepath.Join(b.options.CacheDir, "steps/old")) {
		t.Error("an empty step folder stayed")
	}
}

// Words of a recipe end in command lines, lists and scripts that run as root.
func TestCheckRecipe(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(r *spec.Recipe)
		want   string
	}{
		{"good", func(*spec.Recipe) {}, ""},
		{"two bases", func(r *spec.Recipe) { r.Base.Tar = "x.tar" }, "exactly one"},
		{"no kernel", func(r *spec.Recipe) { r.Kernel = "" }, "needs a kernel"},
		{"an option as a kernel", func(r *spec.Recipe) { r.Kernel = "-oDPkg::Pre-Invoke::=id" }, "layer.kernel.package"},
		{"a pattern as a kernel", func(r *spec.Recipe) { r.Kernel = "linux.*" }, "layer.kernel.package"},
		{"another machine", func(r *spec.Recipe) { r.Arch = "amd64,i386" }, "layer.arch"},
		{"an option as a package", func(r *spec.Recipe) { r.Packages.Install = []spec.Package{{Name: "--allow-unauthenticated"}} }, "not the name of a package"},
		{"an option as a held package", func(r *spec.Recipe) { r.Packages.Hold = []string{"-x"} }, "not the name of a package"},
		{"a package that is to go away by pattern", func(r *spec.Recipe) { r.Packages.Blacklist = []string{"lib*"} }, "not the name of a package"},
		{"a version that is two words", func(r *spec.Recipe) { r.Packages.Install = []spec.Package{{Name: "tree", Version: "1 -o x"}} }, "not a package version"},
		{"a repository with a second line", func(r *spec.Recipe) {
			r.Packages.Repositories = []spec.Repository{{ID: "a", URL: "http://x/ y\ndeb [trusted=yes] http://z", Distributions: []string{"d"}}}
		}, "not the URL"},
		{"a suite with a second line", func(r *spec.Recipe) { r.Base.Debian.Suite = "trixie\ndeb" }, "cannot be in a list"},
		{"a profile beside the others", func(r *spec.Recipe) { r.AppArmor.Profiles = []spec.Profile{{File: "../rc.local"}} }, "../rc.local"},
		{"a user that is an option", func(r *spec.Recipe) { r.Accounts.Users = []spec.User{{Name: "-rf"}} }, "-rf"},
		{"an owner that is an option", func(r *spec.Recipe) {
			r.Perm = &spec.Perm{Paths: []spec.PermPath{{Path: "/x", Owner: "--from=x", Mode: "0600"}}}
		}, "--from"},
	} {
		r := testRecipe()
		c.change(&r)
		if err := Check(r); c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
}

// A base's account keeps its number, and the first user gets the next.
func TestReserve(t *testing.T) {
	base := accounts.PeopleIn("root:x:0:0::/root:/bin/sh\nubuntu:x:1000:1000::/home/ubuntu:/bin/bash\nnobody:x:65534:65534::/:/bin/false\n")
	recipes := []spec.Recipe{{Accounts: spec.Accounts{Users: []spec.User{{Name: "alice"}}}}}
	rows, err := Settle(recipes, Reserve(nil, base))
	if err != nil || len(rows) != 2 || rows[0].UID != 1001 || rows[1].Name != "ubuntu" || rows[1].UID != 1000 {
		t.Errorf("got %+v, %v", rows, err)
	}
	known := []spec.Account{{Name: "bob", UID: 1000, GID: 1000, State: "active"}}
	if got := Reserve(known, base); len(got) != 1 {
		t.Errorf("the base took bob's number: %+v", got)
	}
	if got := Reserve(rows, base); len(got) != 2 {
		t.Errorf("a row twice: %+v", got)
	}
}
