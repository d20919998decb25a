// SPDX-License-Identifier: Apache-2.0

package sbom

import (
	"encoding/json"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

// BuildType names how layers are made, for SLSA.
const BuildType = "https://caisson.dev/build/v1"

type provenance struct {
	Definition definition `json:"buildDefinition"`
	Run        run        `json:"runDetails"`
}

type definition struct {
	Type     string            `json:"buildType"`
	External map[string]string `json:"externalParameters"`
	Internal map[string]string `json:"internalParameters,omitempty"`
	Resolved []resource        `json:"resolvedDependencies"`
}

type run struct {
	Builder    builder    `json:"builder"`
	Byproducts []resource `json:"byproducts,omitempty"`
}

type builder struct {
	ID      string            `json:"id"`
	Version map[string]string `json:"version"`
}

type resource struct {
	URI       string            `json:"uri,omitempty"`
	Name      string            `json:"name,omitempty"`
	MediaType string            `json:"mediaType,omitempty"`
	Digest    map[string]string `json:"digest,omitempty"`
}

// Provenance says what a layer was built from: the recipe's hash (a recipe holds
// password hashes), every package with its sha256, and as a by-product the SBOM,
// so that one small signature covers it. version is that of caisson.
func Provenance(l spec.Layer, suite string, sbomDigest, version string) ([]byte, error) {
	p := provenance{
		Definition: definition{Type: BuildType, External: map[string]string{
			"fleet": l.Fleet, "variant": l.Variant, "version": l.Version, "arch": l.Arch, "recipe": l.Recipe,
		}},
		Run: run{Builder: builder{ID: "https://caisson.dev/builder", Version: map[string]string{"caisson": version}},
			Byproducts: []resource{{Name: "sbom.spdx.json", MediaType: MediaTypeSPDX, Digest: hexDigest(sbomDigest)}}},
	}
	for _, pkg := range l.Packages {
		r := resource{URI: PURL(pkg, suite)}
		if pkg.SHA256 != "" {
			r.Digest = map[string]string{"sha256": pkg.SHA256}
		}
		p.Definition.Resolved = append(p.Definition.Resolved, r)
	}
	return json.Marshal(p)
}

func hexDigest(d string) map[string]string {
	return map[string]string{"sha256": digest.Hex(d)}
}
