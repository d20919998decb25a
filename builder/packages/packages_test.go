// SPDX-License-Identifier: Apache-2.0

package packages

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/root"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/roottest"
)

const status = `Package: app
Status: install ok installed
Architecture: amd64
Version: 1.0

Package: half
Status: install ok half-configured
Architecture: amd64
Version: 2

Package: lib
Status: hold ok installed
Architecture: all
Version: 3
`

func TestInstalled(t *testing.T) {
	r := roottest.New(t, map[string]string{"var/lib/dpkg/status": status})
	got, err := Installed(r)
	want := []spec.InstalledPackage{{Name: "app", Version: "1.0", Arch: "amd64"}, {Name: "lib", Version: "3", Arch: "all"}}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
}

// What apt is asked to remove, and what it may not: apt-get is a script here that
// says what would go.
func TestRemoveAsksFirst(t *testing.T) {
	for _, c := range []struct {
		name   string
		p      spec.Packages
		says   string
		asked  string // what apt is then asked for
		reason string
	}{
		{"nothing", spec.Packages{}, "", "", ""},
		{"not there", spec.Packages{Blacklist: []string{"other"}}, "", "", ""},
		{"alone", spec.Packages{Blacklist: []string{"lib"}}, "Purg lib [3]", "purge -- lib", ""},
		{"needed by what boots", spec.Packages{Blacklist: []string{"lib"}}, "Purg udev [1]\nPurg lib [3]", "", "udev needs it"},
		{"needed by what is asked for", spec.Packages{Install: []spec.Package{{Name: "app"}}, Blacklist: []string{"lib"}}, "Remv app [1.0]", "", "app needs it"},
		{"strict", spec.Packages{Strict: true}, "", "autoremove --purge", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := roottest.New(t, map[string]string{"var/lib/dpkg/status": status, "usr/bin/apt-get": "#!/bin/sh\necho '" + c.says + "'\n", "usr/bin/apt-mark": "#!/bin/sh\necho \"$@\" >/marked\n"})
			var asked []string
			get := func(args ...string) error { asked = append(asked, strings.Join(args, " ")); return nil }
			err := remove(t.Context(), r, c.p, []string{"udev"}, get)
			if c.reason != "" && (err == nil || !strings.Contains(err.Error(), c.reason)) || c.reason == "" && err != nil {
				t.Errorf("got %v, want %q", err, c.reason)
			}
			if got := strings.Join(asked, "; "); !strings.HasPrefix(got, c.asked) || c.asked == "" && got != "" {
				t.Errorf("apt was asked for %q, want %q", got, c.asked)
			}
			if marked, err := r.ReadFile("/marked"); c.p.Strict && (err != nil || string(marked) != "auto -- app lib\n") {
				t.Errorf("marked %q, %v", marked, err)
			}
		})
	}
}

func TestPreseed(t *testing.T) {
	answer := func(text string) spec.Packages {
		return spec.Packages{Install: []spec.Package{{Name: "app", Debconf: []spec.Debconf{{Question: "app/word", Type: "string", Answer: text}}}}}
	}
	r := roottest.New(t, map[string]string{"usr/bin/debconf-set-selections": "#!/bin/sh\ncat >/answers\n"})
	if err := Preseed(t.Context(), r, answer("a b $c").Install); err != nil {
		t.Fatal(err)
	}
	if got, err := r.ReadFile("/answers"); err != nil || string(got) != "app app/word string a b $c\n" {
		t.Errorf("debconf got %q, %v", got, err)
	}
	if err := Preseed(t.Context(), r, answer("a\nother other/word string x").Install); err == nil {
		t.Error("one answer was two")
	}
	failing := roottest.New(t, map[string]string{"usr/bin/debconf-set-selections": "#!/bin/sh\necho first >&2; echo because >&2; exit 1\n"})
	if err := Preseed(t.Context(), failing, answer("x").Install); err == nil || !strings.HasSuffix(err.Error(), ": because") {
		t.Errorf("got %v", err)
	}
	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Preseed(stopped, r, answer("x").Install); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// The sources in the layer name the archives with their keys, a stanza each.
func TestSources(t *testing.T) {
	r := roottest.New(t, nil)
	err := sources(r, []spec.Repository{{ID: "own", URL: "https://apt.example.org", Distributions: []string{"d"}, Subrepos: []string{"updates"}, Components: []string{"main", "extra"}, Key: "-----BEGIN\n\nxx\n-----END\n"}})
	if err != nil {
		t.Fatal(err)
	}
	want := "# own\nTypes: deb\nURIs: https://apt.example.org\nSuites: d d-updates\nComponents: main extra\nSigned-By:\n -----BEGIN\n .\n xx\n -----END\n\n"
	if got, err := r.ReadFile("/etc/apt/sources.list.d/caisson.sources"); err != nil || string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
}

// TestUnmet names what was recommended by what was asked for, and is not there under any name.
func TestUnmet(t *testing.T) {
	r := roottest.New(t, map[string]string{"var/lib/dpkg/status": `Package: unbound
Status: install ok installed
Recommends: dns-root-data (>= 1), default-mta | mail-transport-agent, curl:any | wget

Package: postfix
Status: install ok installed
Provides: x, mail-transport-agent (= 1)
Recommends: never-asked

Package: dns-root-data
Status: deinstall ok config-files
`})
	got, err := Unmet(r, []string{"unbound", "gone"})
	if want := []string{"unbound: dns-root-data", "unbound: curl | wget"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestMain(m *testing.M) {
	root.Enter()
	os.Exit(m.Run())
}
