// SPDX-License-Identifier: Apache-2.0

package release

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/spec/site"
)

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
