// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/site"
)

// Builds that are in the cache take less than a second: each index is issued later
// than the one that it takes the place of, or a publisher would see a replay.
func TestIndexesOfOneSecond(t *testing.T) {
	r, err := registry.Open("oci:"+t.TempDir()+"/out", registry.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key, err := sign.Generate()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	p := Pusher{Registry: r, Release: key, Now: now}
	for n, version := range []string{"1", "2", "3"} {
		layer := oci.Describe(oci.MediaTypeManifest, []byte(version)).Bare()
		digest, err := p.Index(t.Context(), []oci.Descriptor{layer}, nil, "metal", version)
		if err != nil {
			t.Fatal(err)
		}
		s, err := (&Set{Index: digest, registry: r}).Statement(t.Context(), []sign.Verifier{sign.VerifierOf(key)})
		if want := now.Add(time.Duration(n) * time.Second); err != nil || !s.IssuedAt.Equal(want) {
			t.Errorf("index %s is issued at %s (%v), want %s", version, s.IssuedAt, err, want)
		}
	}
}

// TestCurrentIsNewerThanWhatWasSeen: two builds of one second are two, whichever key signed the
// first, and a date ahead of the clock is not followed.
func TestCurrentIsNewerThanWhatWasSeen(t *testing.T) {
	now := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	for seen, want := range map[time.Duration]time.Duration{-time.Hour: 0, 0: time.Second, time.Minute: time.Minute + time.Second, time.Hour: 0} {
		reg, err := registry.Open("oci:"+t.TempDir(), registry.Options{})
		if err != nil {
			t.Fatal(err)
		}
		key, err := sign.Generate()
		if err != nil {
			t.Fatal(err)
		}
		p := &Pusher{Registry: reg, Release: key, Now: now, Seen: now.Add(seen)}
		index, err := p.Index(t.Context(), nil, nil, "metal-a", "1")
		if err != nil {
			t.Fatal(err)
		}
		s, err := (&Set{Index: index, registry: reg}).Statement(t.Context(), []sign.Verifier{sign.VerifierOf(key)})
		if err != nil || !s.IssuedAt.Equal(now.Add(want)) {
			t.Errorf("seen %s from now: %s, %v", seen, s.IssuedAt, err)
		}
	}
}

func TestParseName(t *testing.T) {
	for name, want := range map[string][2]string{
		"oci:out":                               {"oci:out", "current"},
		"oci:out@7":                             {"oci:out", "7"},
		"oci:out@sha256:00":                     {"oci:out", "sha256:00"},
		"oci:out/layer:7":                       {"oci:out", "7"},
		"oci:a/layer/out":                       {"oci:a/layer/out", "current"},
		"oci:home/me@work/out":                  {"oci:home/me@work/out", "current"},
		"registry.example.org:5000/layer:7":     {"registry.example.org:5000", "7"},
		"registry.example.org:5000/a":           {"registry.example.org:5000/a", "current"},
		"registry.example.org/a/layer@sha256:0": {"registry.example.org/a", "sha256:0"},
		"registry.example.org/a@current":        {"registry.example.org/a", "current"},
		"oci:out/node:node1":                    {},
		"registry.example.org/a/fleet:current":  {},
	} {
		ref, reference, err := ParseName(name)
		if got := [2]string{ref, reference}; got != want || (err != nil) != (want[0] == "") {
			t.Errorf("ParseName(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
}

// What an archive does not have is said with the line that asks for it.
func TestWritten(t *testing.T) {
	const text = `apiVersion: caisson.dev/v1alpha1
kind: Site
metadata: {name: x}
layer:
  base: {debian: {suite: trixy}}
  kernel: {package: linux-imagine}
nodes: [{name: n1}]
conf:
  apt:
    packages: [{name: chronny}]
    repositories:
      own: {url: "https://example.org/deb", distributions: [stabel], components: [main], gpgkey: "-----BEGIN PGP PUBLIC KEY BLOCK-----"}
  overrides:
    divingbell_apt:
      hosts: [{name: n1, conf: {apt: {packages: [{name: jq, version: "9"}]}}}]
`
	s, r := site.Parse(fstest.MapFS{"site.yaml": {Data: []byte(text)}}, "site.yaml")
	if r.Err() != nil {
		t.Fatal(r.Err())
	}
	for place, err := range map[string]error{
		"site.yaml:10:23: ": &apt.Unknown{Package: "chronny"},
		"site.yaml:15:57: ": &apt.Unknown{Package: "jq", Version: "9"},
		"site.yaml:6:21: ":  &apt.Unknown{Package: "linux-imagine"},
		"site.yaml:5:26: ":  &apt.NoSuite{Suite: "trixy-updates"},
		"site.yaml:12:61: ": &apt.NoSuite{Suite: "stabel"},
		"build: ":           &apt.Unknown{Package: "systemd"},
	} {
		if got := written(s, fmt.Errorf("build: %w", err)).Error(); !strings.HasPrefix(got, place) {
			t.Errorf("%s, want it at %s", got, place)
		}
	}
}
