// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"bytes"
	"encoding/json"
	"regexp"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

var layer = spec.Layer{Fleet: "metal", Version: "7", Variant: "default", Recipe: "sha256:" + string(bytes.Repeat([]byte("a"), 64)), Arch: "amd64", Created: "2026-11-19T10:00:00Z",
	Packages: []spec.InstalledPackage{
		{Name: "libstdc++6", Version: "14.2.0-19", Arch: "amd64", SHA256: "ab"},
		{Name: "openssh-server", Version: "1:10.0p1-7~deb13u1", Arch: "amd64", SHA256: "cd"},
		{Name: "local", Version: "1", Arch: "all"},
	}}

func TestSPDX(t *testing.T) {
	data, err := SPDX(layer, "trixie")
	if err != nil {
		t.Fatal(err)
	}
	var doc spdxDocument
	if err := json.Unmarshal(data, &doc); err != nil {
		t.Fatal(err)
	}
	valid := regexp.MustCompile(`^SPDXRef-[A-Za-z0-9.-]+$`)
	ids := map[string]bool{doc.ID: true}
	for _, p := range doc.Packages {
		if !valid.MatchString(p.ID) || ids[p.ID] {
			t.Errorf("id %q is not valid or not alone", p.ID)
		}
		ids[p.ID] = true
	}
	for _, r := range doc.Relationships {
		if !ids[r.From] || !ids[r.To] {
			t.Errorf("relationship %+v names nothing", r)
		}
	}
	if len(doc.Packages) != 1+len(layer.Packages) || len(doc.Relationships) != 1+len(layer.Packages) {
		t.Errorf("%d packages and %d relationships for %d installed", len(doc.Packages), len(doc.Relationships), len(layer.Packages))
	}
	if got, want := doc.Packages[2].Refs[0].Locator, "pkg:deb/debian/openssh-server@1%3A10.0p1-7~deb13u1?arch=amd64&distro=trixie"; got != want {
		t.Errorf("purl %s, want %s", got, want)
	}
	if len(doc.Packages[3].Checksums) != 0 {
		t.Error("a package of unknown origin has a checksum")
	}
	again, _ := SPDX(layer, "trixie")
	if !bytes.Equal(data, again) {
		t.Error("the same layer has two descriptions")
	}
}

func TestProvenance(t *testing.T) {
	data, err := Provenance(layer, "trixie", "sha256:ee", "1.0")
	if err != nil {
		t.Fatal(err)
	}
	var p provenance
	if err := json.Unmarshal(data, &p); err != nil {
		t.Fatal(err)
	}
	if p.Definition.Type != BuildType || len(p.Definition.Resolved) != 3 || p.Definition.Resolved[0].Digest["sha256"] != "ab" ||
		p.Run.Byproducts[0].Digest["sha256"] != "ee" || p.Definition.External["recipe"] != layer.Recipe {
		t.Errorf("provenance %s", data)
	}
}
