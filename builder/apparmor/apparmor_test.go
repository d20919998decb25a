// SPDX-License-Identifier: Apache-2.0

package apparmor

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/roottest"
)

// compiled is a policy as the parser writes it, as far as [Profiles] reads it.
func compiled(version uint32, profiles ...spec.LoadedProfile) []byte {
	number := func(b []byte, n uint32) []byte { return binary.LittleEndian.AppendUint32(append(b, tagU32), n) }
	var b []byte
	for _, p := range profiles {
		b = append(b, named("version")...)
		b = number(b, version)
		b = append(append(b, named("profile")...), tagStruct)
		b = binary.LittleEndian.AppendUint16(append(b, tagString), uint16(len(p.Name)+1))
		b = append(append(b, p.Name...), 0)
		b = append(append(b, named("flags")...), tagStruct)
		b = number(b, 0)
		for n, name := range modes {
			if name == p.Mode {
				b = number(b, n)
			}
		}
		b = number(b, 0)
	}
	return b
}

func TestProfiles(t *testing.T) {
	two := []spec.LoadedProfile{{Name: "a", Mode: "enforce"}, {Name: "/usr/bin/b", Mode: "unconfined"}}
	for _, c := range []struct {
		name   string
		policy []byte
		want   []spec.LoadedProfile
		reason string
	}{
		{"two", compiled(5, two...), two, ""},
		{"all complain", compiled(5|forced, two...), []spec.LoadedProfile{{Name: "a", Mode: "complain"}, {Name: "/usr/bin/b", Mode: "complain"}}, ""},
		{"none", nil, nil, errNoProfile.Error()},
		{"cut after the mark", compiled(5, two...)[:30], nil, "cut short"},
		{"cut before the flags", compiled(5, two[0])[:40], nil, "no flags"},
		{"a namespace", append(compiled(5, two...), named("namespace")...), nil, "namespace"},
	} {
		got, err := Profiles(c.policy)
		if c.reason == "" && (err != nil || !slices.Equal(got, c.want)) || c.reason != "" && (err == nil || !strings.Contains(err.Error(), c.reason)) {
			t.Errorf("%s: %+v, %v; want %+v %q", c.name, got, err, c.want, c.reason)
		}
	}
}

func FuzzProfiles(f *testing.F) {
	f.Add(compiled(5, spec.LoadedProfile{Name: "a", Mode: "enforce"}))
	f.Fuzz(func(t *testing.T, policy []byte) {
		if got, err := Profiles(policy); err == nil && len(got) == 0 {
			t.Error("no profile and no error")
		}
	})
}

// Of what lies in apparmor.d, profiles are compiled: not directories, backups,
// those that are switched off, nor those in whose place the site's stand.
func TestStock(t *testing.T) {
	r := roottest.New(t, map[string]string{
		"etc/apparmor.d/usr.bin.a": "", "etc/apparmor.d/off": "", "etc/apparmor.d/disable/off": "", "etc/apparmor.d/own": "", "etc/apparmor.d/README": "",
		"etc/apparmor.d/x.dpkg-new": "", "etc/apparmor.d/abstractions/base": "", "etc/apparmor.d/.hidden": "",
	})
	own := spec.AppArmor{Profiles: []spec.Profile{{File: "own"}, {File: "new"}}}
	if got, err := stock(r, own.Profiles); err != nil || !slices.Equal(got, []string{"usr.bin.a"}) {
		t.Errorf("stock is %v, %v", got, err)
	}
	if got := Replaced(r, own); !slices.Equal(got, []string{"own"}) {
		t.Errorf("replaced are %v", got)
	}
}

func TestLeadsOut(t *testing.T) {
	for text, want := range map[string]bool{
		"include <tunables/global>\nprofile a { }\n":                          false,
		"profile a {\n  /opt/x r,\n  include if exists <local/a>\n}\n":        false,
		"profile a {\n  include if exists \"/opt/a.d\"\n}\n":                  true,
		"#include /opt/a\nprofile a { }\n":                                    true,
		"profile a {\n  # include the whole /etc/ssl directory\n  /x r,\n}\n": false,
	} {
		r := roottest.New(t, map[string]string{"etc/apparmor.d/abstractions/a": text})
		if got, err := AnyLeadsOut(r); err != nil || got != want || LeadsOut(text) != want {
			t.Errorf("%q: %v, %v, %v; want %v", text, got, LeadsOut(text), err, want)
		}
	}
}

// A layer without a parser, a parser that refuses, and a file of variables: the
// parser is a script here.
func TestBake(t *testing.T) {
	features := Features("file {}\n")
	parser := "#!/bin/sh\nfor a; do case $a in --ofile=*) out=${a#--ofile=};; esac; done\ncase $a in */bad) echo 'Warning: x' >&2; echo \"AppArmor parser error for $a in profile $a at line 2: syntax\" >&2; exit 1;; esac\nmkdir -p ${out%/*}; : >$out\n"
	for _, c := range []struct {
		name   string
		files  map[string]string
		a      spec.Profile
		reason string
	}{
		{"no parser", nil, spec.Profile{File: "a", Text: "profile a { }\n"}, "add package apparmor"},
		{"refused", map[string]string{"usr/sbin/apparmor_parser": parser}, spec.Profile{File: "bad", Text: "x\n"}, "line 2: syntax"},
		{"variables", map[string]string{"usr/sbin/apparmor_parser": parser}, spec.Profile{File: "vars", Text: "# mine\n@{HERE} = /opt\n"}, ""},
		{"nothing", map[string]string{"usr/sbin/apparmor_parser": parser}, spec.Profile{File: "empty", Text: "# nothing\n"}, errNoProfile.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			files := map[string]string{"etc/apparmor.d/README": ""}
			for name, text := range c.files {
				files[name] = text
			}
			r := roottest.New(t, files)
			got, err := Bake(t.Context(), r, spec.AppArmor{Profiles: []spec.Profile{c.a}}, features)
			if c.reason != "" {
				if err == nil || !strings.Contains(err.Error(), c.reason) || strings.Contains(err.Error(), "Warning") {
					t.Errorf("got %v, want an error with %q", err, c.reason)
				}
				return
			}
			if err != nil || len(got.Profiles) != 0 || got.Features != features.Digest() {
				t.Errorf("got %+v, %v", got, err)
			}
			if names, err := r.ReadDir("/etc/apparmor.d"); err != nil || !slices.Contains(names, "vars") {
				t.Errorf("the file is not there: %v, %v", names, err)
			}
		})
	}
	// What packages' profiles include is there before they are compiled, and is compiled by none.
	sees := "#!/bin/sh\ntest -s /etc/apparmor.d/local/a && test -s /etc/apparmor.d/tunables/home.d/site || exit 9\n"
	r := roottest.New(t, map[string]string{"usr/sbin/apparmor_parser": sees + strings.TrimPrefix(parser, "#!/bin/sh\n"), "etc/apparmor.d/a": "profile a { }\n", "etc/apparmor.d/local/a": ""})
	got, err := Bake(t.Context(), r, spec.AppArmor{Profiles: []spec.Profile{{File: "local/a", Text: "/x r,\n"}, {File: "tunables/home.d/site", Text: "@{H}+=/y\n"}}}, features)
	if err != nil || len(got.Profiles) != 0 {
		t.Errorf("files that others include: %+v, %v", got, err)
	}
	if err := Check(spec.AppArmor{Profiles: []spec.Profile{{File: "../a"}, {File: "b"}, {File: "b"}}}); err == nil || errors.Is(err, errNoProfile) || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("of three names two are bad: %v", err)
	}
}

// TestStockOfComments: a package's file may define no profile, as MariaDB's; nothing is loaded
// of it.
func TestStockOfComments(t *testing.T) {
	r := roottest.New(t, map[string]string{
		"usr/bin/apparmor_parser":       "#!/bin/sh\nfor a; do case $a in --ofile=*) : >${a#--ofile=};; esac; done\n",
		"etc/apparmor.d/usr.sbin.other": "# intentionally empty\n",
		"etc/systemd/system/x":          "",
		paths.AppArmorDir[1:] + "/x":    "",
	})
	if all, err := bakeStock(t.Context(), r, nil); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
	if _, err := r.Lstat(paths.AppArmorDir + "/usr.sbin.other.bin"); err == nil {
		t.Error("its binary is in the layer")
	}
}

func TestMain(m *testing.M) {
	root.Enter()
	os.Exit(m.Run())
}
