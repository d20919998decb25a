// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/builder/apparmor"
	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
)

// policyRoot is the base without the profiles that its packages brought, which would be
// compiled each time.
func policyRoot(t *testing.T) *root.Root {
	t.Helper()
	const profiles = "etc/apparmor.d"
	i, without := newInstaller(t), t.TempDir()
	all, err := os.ReadDir(filepath.Join(i.base, profiles))
	if err := errors.Join(err, os.MkdirAll(filepath.Join(without, profiles), 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		if e.Type().IsRegular() {
			if err := unix.Mknod(filepath.Join(without, profiles, e.Name()), unix.S_IFCHR, 0); err != nil { // as overlayfs has what is deleted
				t.Fatal(err)
			}
		}
	}
	return &root.Root{Lowers: []string{without, i.base}, Upper: t.TempDir(), Work: t.TempDir()}
}

const profileA = "abi <abi/4.0>,\ninclude <tunables/global>\nprofile a /usr/bin/a {\n  include <abstractions/base>\n  userns,\n  /** r,\n  ^hat {\n    /tmp/x w,\n  }\n}\n"

func TestAppArmor(t *testing.T) {
	features, err := apparmor.FeaturesOf("6.12.9-amd64")
	if err != nil {
		t.Fatal(err)
	}
	profiles := func(pairs ...string) spec.AppArmor {
		var a spec.AppArmor
		for i := 0; i < len(pairs); i += 2 {
			a.Profiles = append(a.Profiles, spec.Profile{File: pairs[i], Text: pairs[i+1]})
		}
		return a
	}
	complain := profiles("a", profileA)
	complain.Complain = true
	tests := []struct {
		name string
		a    spec.AppArmor
		want string // "name mode" each, or a part of the error
		bad  bool
	}{
		{"enforce with a hat", profiles("a", profileA), "a enforce, a//hat enforce", false},
		{"complain", complain, "a complain, a//hat complain", false},
		{"one of two complains", profiles("a", profileA, "b", "profile b flags=(complain) { /x r, }\n"), "a enforce, a//hat enforce, b complain", false},
		{"a backslash and a quote stay", profiles("c", "profile c /opt/c {\n  \"/srv/a b/\\\\x\" r,\n}\n"), "c enforce", false},
		{"syntax", profiles("a", "profile a {\n  /x r\n}\n"), "line 3", true},
		{"missing abstraction", profiles("a", "profile a {\n  include <abstractions/none>\n}\n"), "abstractions/none", true},
		{"one name twice", profiles("a", "profile x { /a r, }\n", "b", "profile x { /b r, }\n"), `"x" is defined in a and in b`, true},
		{"a path as name", profiles("../a", "profile a { }\n"), "cannot be used as a file of profiles", true},
		{"variables that a profile includes", profiles("vars", "@{HERE}=/opt/here\n", "a", "include \"/etc/apparmor.d/vars\"\nprofile a { @{HERE}/x r, }\n"), "a enforce", false},
		{"nothing defined", profiles("a", "# empty\n"), "profile a", true},
	}
	r := policyRoot(t)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := &root.Root{Lowers: r.Lowers, Upper: t.TempDir(), Work: t.TempDir()}
			policy, err := apparmor.Bake(context.Background(), r, test.a, features)
			if test.bad {
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("got %v, want an error with %q", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range policy.Profiles {
				got = append(got, p.Name+" "+p.Mode)
				if _, err := r.ReadFile(p.File); err != nil {
					t.Error(err)
				}
			}
			if strings.Join(got, ", ") != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
			if text, err := r.ReadFile("/etc/apparmor.d/" + test.a.Profiles[0].File); err != nil || string(text) != test.a.Profiles[0].Text {
				t.Errorf("the profile's text changed: %v", err)
			}
			if text, err := r.ReadFile(apparmor.FeaturesFile); err != nil || !bytes.Equal(text, features) || policy.Features != features.Digest() {
				t.Errorf("the features are not beside the binaries: %v", err)
			}
		})
	}
}

// Without features the parser makes weaker policy and says nothing: that this
// cannot happen here is worth a test.
func TestAppArmorFeaturesMatter(t *testing.T) {
	r := policyRoot(t)
	size := func(f apparmor.Features) int {
		r := &root.Root{Lowers: r.Lowers, Upper: t.TempDir(), Work: t.TempDir()}
		policy, err := apparmor.Bake(context.Background(), r, spec.AppArmor{Profiles: []spec.Profile{{File: "a", Text: profileA}}}, f)
		if err != nil {
			t.Fatal(err)
		}
		if len(policy.Profiles) == 0 {
			t.Fatal("no profiles")
		}
		data, err := r.ReadFile(paths.AppArmorDir + "/a.bin")
		if err != nil {
			t.Fatal(err)
		}
		return len(data)
	}
	full, err := apparmor.FeaturesOf("6.12.9")
	if err != nil {
		t.Fatal(err)
	}
	if strong, weak := size(full), size(apparmor.Features("file {mask {create read write exec append mmap_exec link lock\n}\n}\n")); strong <= weak {
		t.Errorf("%d bytes with the kernel's features, %d with almost none", strong, weak)
	}
	if _, err := apparmor.FeaturesOf("7.99.0"); err == nil {
		t.Error("features of a kernel that nobody has looked at")
	}
}
