// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/spec"
)

// TestLayersSteerNoTerminal: names and versions in a layer's description are
// somebody else's text.
func TestLayersSteerNoTerminal(t *testing.T) {
	const forged = "1\x1b[2J\rx\nreleased  true\u202e"
	var out strings.Builder
	release.Inspected{Digest: "sha256:0", Layer: spec.Layer{Version: forged, Fleet: forged, Packages: []spec.InstalledPackage{{Name: forged, Version: forged}}}}.Write(&out, true, true)
	if strings.ContainsAny(out.String(), "\x1b\r\u202e") {
		t.Errorf("it steers: %q", out.String())
	}
	if strings.Contains(out.String(), "\nreleased") {
		t.Errorf("a line is forged:\n%s", out.String())
	}
}
