// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bufio"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/builder/base"
	"github.com/caisson-os/caisson/builder/packages"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// TestTimeService: a layer has one time service, the site's where it has one.
func TestTimeService(t *testing.T) {
	o := testOptions(t)
	for name, c := range map[string]struct {
		install, never []string
		want           string
	}{
		"nothing said":      {nil, nil, "systemd-timesyncd"},
		"the site's":        {[]string{"chrony"}, nil, "chrony"},
		"one that needs it": {[]string{"ntpsec-ntpviz", "ntpsec"}, nil, "ntpsec"},
		"never":             {nil, []string{"systemd-timesyncd"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := testRecipe()
			r.Packages = spec.Packages{Blacklist: c.never}
			for _, name := range c.install {
				r.Packages.Install = append(r.Packages.Install, spec.Package{Name: name})
			}
			said := ""
			o.Progress = func(e Event) { said += e.Text }
			l, err := Resolve(t.Context(), r, o)
			if err != nil {
				t.Fatal(err)
			}
			all := append(names(l.Base), names(l.Packages)...)
			var has []string
			for _, name := range spec.TimePackages() {
				if slices.Contains(all, name) {
					has = append(has, name)
				}
			}
			if strings.Join(has, " ") != c.want || strings.Contains(said, "no time service") != (c.want == "") {
				t.Errorf("time services %v, want %q; said %q", has, c.want, said)
			}
			for _, name := range base.Recommended() {
				if !slices.Contains(names(l.Base), name) && !slices.Contains(onlyUbuntu, name) {
					t.Errorf("trixie's base lacks %s", name)
				}
			}
		})
	}
}

// TestOlderLock: a lock from before the base had what Debian recommends keeps counting, and
// says what it lacks.
func TestOlderLock(t *testing.T) {
	said := ""
	b := &build{recipe: testRecipe(), options: Options{Progress: func(e Event) { said += e.Text }}}
	if key := b.lockKey(); key != "sha256:3fd32b50e23e45d18897fa46b8aba14ae2671e65485a231ad83560016d9fa8a4" {
		t.Errorf("locks of 0.9.0 are of %s no more", key)
	}
	b.options.Lock = &packages.Lock{Recipe: b.lockKey(), BaseDate: "2026-01-01T00:00:00Z"}
	if err := b.locked(); err != nil {
		t.Fatal(err)
	}
	b.sayLacking()
	for _, want := range []string{"procps", "linux-sysctl-defaults", "no time service", "caisson lock --update"} {
		if !strings.Contains(said, want) {
			t.Errorf("said %q without %s", said, want)
		}
	}
	for _, c := range []struct {
		has   []apt.Deb
		never []string
		older bool
	}{
		{[]apt.Deb{{Name: "procps"}}, nil, true}, // of before tzdata
		{[]apt.Deb{{Name: "procps"}}, []string{"tzdata"}, false},
		{[]apt.Deb{{Name: "procps"}, {Name: "tzdata"}}, nil, false},
	} {
		said, b.chosen.Base, b.recipe.Packages.Blacklist = "", c.has, c.never
		if b.sayLacking(); strings.Contains(said, "the lock is older") != c.older {
			t.Errorf("%v, never %v: said %q", c.has, c.never, said)
		}
	}
}

// TestSaysWhatIsLeftOut: who asks for manual pages or documentation reads in the build that layers have none.
func TestSaysWhatIsLeftOut(t *testing.T) {
	for asked, want := range map[string]string{"man-db": "man-db", "bash-doc": "bash-doc", "tree": "", "gawk-doc": ""} {
		said, r := "", testRecipe()
		r.Base.Debian.Documentation = asked == "gawk-doc" // this site keeps what there is to read
		r.Packages.Install = []spec.Package{{Name: asked}}
		b := &build{recipe: r, options: Options{Progress: func(e Event) { said += e.Text + "\n" }}}
		if key := b.lockKey(); asked == "tree" {
			if r.Base.Debian.Documentation = true; b.lockKey() != key {
				t.Error("a lock is of the same packages with their documentation")
			}
			r.Base.Debian.Documentation = false
		}
		b.sayLacking()
		if got := strings.Contains(said, "layers leave out man pages"); got != (want != "") || !strings.Contains(said, want) {
			t.Errorf("%s: %q", asked, said)
		}
	}
}

// TestRecommended holds the table of the base to the lists of each suite itself.
func TestRecommended(t *testing.T) {
	o := testOptions(t)
	unused := map[string]bool{}
	for _, name := range base.Decided() {
		unused[name] = !slices.Contains(onlyUbuntu, name)
	}
	for _, suite := range []string{"trixie", "bookworm"} {
		r := testRecipe()
		r.Base.Debian.Suite = suite
		t.Run(suite, func(t *testing.T) { recommended(t, r, o, unused) })
	}
	for name, debian := range unused {
		if debian {
			t.Errorf("%s is decided of, and no suite has it", name)
		}
	}
}

// onlyUbuntu lists the packages with a row that Debian has not.
var onlyUbuntu = []string{"systemd-hwe-hwdb", "ubuntu-minimal", "ubuntu-pro-client"}

// TestLongRecommendedOfUbuntu holds the same table to the lists of Ubuntu, as docs/building.md has it.
func TestLongRecommendedOfUbuntu(t *testing.T) {
	require.Long(t)
	const keyring = "/usr/share/keyrings/ubuntu-archive-keyring.gpg"
	if _, err := os.Stat(keyring); err != nil {
		require.Missing(t, "ubuntu", "no "+keyring)
	}
	r := testRecipe()
	r.Kernel = "linux-image-virtual"
	r.Base.Debian = &spec.Debian{Suite: "noble", Components: []string{"main", "universe"}, Keyring: keyring,
		Mirror: "http://archive.ubuntu.com/ubuntu", Security: "http://security.ubuntu.com/ubuntu"}
	unused := map[string]bool{}
	for _, name := range onlyUbuntu {
		unused[name] = true
	}
	recommended(t, r, testOptions(t), unused)
	if len(unused) > 0 {
		t.Errorf("decided of, and not in Ubuntu: %v", unused)
	}
}

// recommended takes from unused what the suite of a recipe has. A package that only others need which
// are left out is left out with them: in Ubuntu those have their priority.
func recommended(t *testing.T, r spec.Recipe, o Options, unused map[string]bool) {
	l, err := Resolve(t.Context(), r, o)
	if err != nil {
		t.Fatal(err)
	}
	in, packages := names(l.Base), listed(t, o, r.Base.Debian.Suite)
	decided := map[string]bool{}
	for _, name := range base.Decided() {
		if packages[name] != nil {
			delete(unused, name)
		}
		leave(name, in, packages, decided)
	}
	for name, p := range packages {
		if slices.Contains(base.Recommended(), name) && !slices.Contains(in, name) {
			t.Errorf("the base lacks %s", name)
		}
		if known := decided[name] || slices.Contains(in, name); !known && (p["Priority"] == "required" || p["Priority"] == "important") {
			t.Errorf("%s is %s, and nothing is decided of it", name, p["Priority"])
		}
		if !slices.Contains(base.Include, name) || p["Recommends"] == "" {
			continue
		}
		for one := range strings.SplitSeq(p["Recommends"], ", ") {
			if !slices.ContainsFunc(alternatives(one), func(o string) bool { return slices.Contains(in, o) || decided[o] }) {
				t.Errorf("%s recommends %s, and nothing is decided of it", name, one)
			}
		}
	}
}

// leave marks a package that is not in the base, with all that it asks for.
func leave(name string, in []string, packages map[string]map[string]string, left map[string]bool) {
	if left[name] || slices.Contains(in, name) {
		return
	}
	left[name] = true
	if name == "ubuntu-minimal" { // each that it names is decided of by itself
		return
	}
	for _, key := range []string{"Depends", "Pre-Depends", "Recommends"} {
		for one := range strings.SplitSeq(packages[name][key], ", ") {
			for _, other := range alternatives(one) {
				leave(other, in, packages, left)
			}
		}
	}
}

// alternatives returns the names of one dependency.
func alternatives(one string) (names []string) {
	for other := range strings.SplitSeq(one, " | ") {
		name, _, _ := strings.Cut(strings.ReplaceAll(other, ":", " "), " ")
		names = append(names, name)
	}
	return names
}

// listed returns the fields of each package of a suite's main component, by name.
func listed(t *testing.T, o Options, suite string) map[string]map[string]string {
	lists, err := filepath.Glob(filepath.Join(o.CacheDir, "apt/*/lists/*_"+suite+"_main_binary-amd64_Packages"))
	if err != nil || len(lists) == 0 {
		t.Fatalf("no lists: %v", err)
	}
	f, err := os.Open(lists[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() // only read
	packages := map[string]map[string]string{}
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<20)
	var one map[string]string
	for scan.Scan() {
		key, value, _ := strings.Cut(scan.Text(), ": ")
		if key == "Package" {
			one = map[string]string{}
			packages[value] = one
		}
		if one != nil {
			one[key] = value
		}
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	return packages
}
