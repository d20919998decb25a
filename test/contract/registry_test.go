// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"testing"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/rules"
)

// TestRegistryOfASite: what validate takes as a site's registry, every verb that opens it
// takes, and the other way round; a word alone is the exception that has a reason.
func TestRegistryOfASite(t *testing.T) {
	for text, want := range map[string]bool{
		"registry.example.org/metal-a": true, "registry.example.org:5000/metal-a/b": true, "registry.example.org": true, "192.0.2.1:5000": true,
		"[2001:db8::1]:5000/x": true, "localhost/x": true, "localhost": true, "harbor/metal-a": true, "harbor:443": true, "oci:out": true, "oci:./out": true, "oci:/srv/out": true,
		"registry.example.org/metal-a/": true,
		"":                              false, "oci:": false, "https://registry.example.org/metal-a": false, "http://registry.example.org": false, "docker://registry.example.org/x": false,
		"registry.example.org/metal-a:latest": false, "registry.example.org/Metal": false, "registry.example.org/metal-a@sha256:00": false,
		"registry.example.org:/x": false, "user@registry.example.org/x": false, "/srv/out": false, "registry.example.org/a//b": false, "a b/c": false,
	} {
		site, verbs := rules.Registry(text) == nil, true
		if _, err := oci.ParseRef(text); err != nil {
			verbs = false
		}
		if site != want || verbs != want {
			t.Errorf("%q: a site takes it: %v, verbs take it: %v, want %v", text, site, verbs, want)
		}
	}
	for _, directory := range []string{"out", "./out", "../out"} {
		if rules.Registry(directory) == nil {
			t.Errorf("%q is taken for a host, and a directory is meant", directory)
		}
	}
}
