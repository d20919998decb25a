// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// A part's sum changes with all that a step can see at its paths, and with
// nothing else.
func TestPartSum(t *testing.T) {
	require.Root(t)
	type change func(tree string) error
	put := func(name, text string) change {
		return func(tree string) error {
			at := filepath.Join(tree, name)
			if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
				return err
			}
			return os.WriteFile(at, []byte(text), 0o644)
		}
	}
	link := func(target, name string) change {
		return func(tree string) error { return os.Symlink(target, filepath.Join(tree, name)) }
	}
	paths := []string{"/usr/lib/firmware", "/etc/ssl/certs/ca.crt"}
	for _, c := range []struct {
		name          string
		change        change
		same, escapes bool
	}{
		{"another package", put("usr/bin/tree", "x"), true, false},
		{"beside a file", put("etc/ssl/certs/other.crt", "x"), true, false},
		{"a date", func(tree string) error {
			return unix.Utimes(filepath.Join(tree, "usr/lib/firmware/a"), []unix.Timeval{{Sec: 1}, {Sec: 1}})
		}, true, false},
		{"a file more", put("usr/lib/firmware/deep/b", "x"), false, false},
		{"another text", put("usr/lib/firmware/a", "y"), false, false},
		{"a mode", func(tree string) error { return os.Chmod(filepath.Join(tree, "usr/lib/firmware/a"), 0o600) }, false, false},
		{"a mode on the way", func(tree string) error { return os.Chmod(filepath.Join(tree, "usr/lib"), 0o700) }, false, false},
		{"a removed file", func(tree string) error {
			return unix.Mknod(filepath.Join(tree, "usr/lib/firmware/gone"), unix.S_IFCHR, 0)
		}, false, false},
		{"a directory that hides those below", func(tree string) error {
			return unix.Setxattr(filepath.Join(tree, "usr/lib"), "trusted.overlay.opaque", []byte("y"), 0)
		}, false, false},
		{"a file of its own", put("etc/ssl/certs/ca.crt", "x"), false, false},
		{"a link within", link("a", "usr/lib/firmware/l"), false, false},
		{"a link out", link("../../bin/x", "usr/lib/firmware/l"), false, true},
		{"a link out on the way", link("/srv/ssl", "etc/ssl"), false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := t.TempDir()
			if err := put("usr/lib/firmware/a", "x")(tree); err != nil {
				t.Fatal(err)
			}
			if err := os.MkdirAll(filepath.Join(tree, "etc"), 0o755); err != nil {
				t.Fatal(err)
			}
			before, err := partSum(tree, "", paths)
			if err != nil || before == "" {
				t.Fatal(before, err)
			}
			if c.name == "beside a file" { // the directories on the way are seen, too
				if err := os.MkdirAll(filepath.Join(tree, "etc/ssl/certs"), 0o755); err != nil {
					t.Fatal(err)
				}
				if before, err = partSum(tree, "", paths); err != nil {
					t.Fatal(err)
				}
			}
			if err := c.change(tree); err != nil {
				t.Fatal(err)
			}
			after, err := partSum(tree, "", paths)
			if err != nil || (after == before) != c.same || (after == "") != c.escapes {
				t.Errorf("%q after %q, %v", after, before, err)
			}
		})
	}
}

// A package that brings a directory on the way as it is below changes no part.
func TestPartSumOfADirectoryBelow(t *testing.T) {
	require.Root(t)
	paths := []string{"/usr/lib/firmware"}
	tree, below := t.TempDir(), t.TempDir()
	for _, dir := range []string{tree, filepath.Join(below, "usr/lib")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sum := func() string {
		t.Helper()
		got, err := partSum(tree, below, paths)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	nothing := sum()
	library := filepath.Join(tree, "usr/lib")
	if err := os.MkdirAll(library, 0o755); err != nil {
		t.Fatal(err)
	}
	if got := sum(); got != nothing {
		t.Errorf("with a library it is %s, not %s", got, nothing)
	}
	if err := unix.Setxattr(library, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
		t.Fatal(err)
	}
	if sum() == nothing {
		t.Error("what hides those below changes nothing")
	}
	if err := unix.Removexattr(library, "trusted.overlay.opaque"); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(library, 0o700); err != nil {
		t.Fatal(err)
	}
	if sum() == nothing {
		t.Error("another mode changes nothing")
	}
}

// A change of the packages that touches neither profiles nor modules makes one
// image, and the steps that are not made again hold what they would have made.
func TestOnePackageMore(t *testing.T) {
	o := testOptions(t)
	state := map[string]string{}
	o.Progress = func(e Event) {
		if e.State == "cached" || e.State == "done" {
			state[e.Step] = e.State
		}
	}
	recipe := testRecipe()
	var err error
	if o.Ledger, err = Settle([]spec.Recipe{recipe}, nil); err != nil {
		t.Fatal(err)
	}
	build := func() map[string]Blob {
		t.Helper()
		r, err := Build(context.Background(), recipe, "default", "1", o)
		if err != nil {
			t.Fatal(err)
		}
		blobs := map[string]Blob{}
		for _, b := range r.Blobs {
			blobs[b.Title] = b
		}
		return blobs
	}
	before := build()
	fresh := fmt.Sprint(time.Now().UnixNano()) // which no cache has
	recipe.Packages.Install = append(recipe.Packages.Install, spec.Package{Name: "lsof", Debconf: []spec.Debconf{{Question: "lsof/" + fresh, Type: "string", Answer: fresh}}})
	after := build()
	for step, want := range map[string]string{stepBase: "cached", stepPackages: "done", stepPolicy: "cached", stepBoot: "cached", stepAgent: "cached"} {
		if state[step] != want {
			t.Errorf("step %s was %s, want %s", step, state[step], want)
		}
	}
	if after["packages"].Digest == before["packages"].Digest || after["policy"].Digest != before["policy"].Digest {
		t.Errorf("packages %s after %s, policy %s after %s", after["packages"].Digest, before["packages"].Digest, after["policy"].Digest, before["policy"].Digest)
	}
	for _, title := range []string{"policy", "initrd"} {
		if err := os.RemoveAll(filepath.Dir(after[title].Path)); err != nil {
			t.Fatal(err)
		}
	}
	again := build()
	for step, title := range map[string]string{stepPolicy: "policy", stepBoot: "initrd"} {
		if state[step] != "done" || again[title].Digest != after[title].Digest {
			t.Errorf("step %s was %s, and made %s, not %s", step, state[step], again[title].Digest, after[title].Digest)
		}
	}
}
