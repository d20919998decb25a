// SPDX-License-Identifier: Apache-2.0

// Package sbom says what a layer is made of, for people and tools outside:
// an SPDX 2.3 document and SLSA v1 provenance, both of what was really
// installed. They hold no time but the layer's own, so the same layer has the
// same descriptions. It reads values and returns bytes; pushing and signing is
// cmd/caisson's.
package sbom

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"maps"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// MediaTypeSPDX is the media type of [SPDX]'s document.
const MediaTypeSPDX = "application/spdx+json"

type spdxDocument struct {
	Version       string             `json:"spdxVersion"`
	License       string             `json:"dataLicense"`
	ID            string             `json:"SPDXID"`
	Name          string             `json:"name"`
	Namespace     string             `json:"documentNamespace"`
	Creation      spdxCreation       `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`
}

type spdxCreation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type spdxPackage struct {
	ID        string         `json:"SPDXID"`
	Name      string         `json:"name"`
	Version   string         `json:"versionInfo,omitempty"`
	Download  string         `json:"downloadLocation"`
	Analyzed  bool           `json:"filesAnalyzed"`
	Concluded string         `json:"licenseConcluded"`
	Declared  string         `json:"licenseDeclared"`
	Copyright string         `json:"copyrightText"`
	Purpose   string         `json:"primaryPackagePurpose,omitempty"`
	Checksums []spdxChecksum `json:"checksums,omitempty"`
	Refs      []spdxRef      `json:"externalRefs,omitempty"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxRef struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

const none = "NOASSERTION"

// SPDX lists the packages of a layer. suite is the distribution's release.
func SPDX(l spec.Layer, suite string) ([]byte, error) {
	name := l.Fleet + "/layer:" + l.Version + "/" + l.Variant
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace: "https://caisson.dev/spdx/" + url.PathEscape(l.Fleet) + "/" + digest.Hex(l.Recipe) + "/" + url.PathEscape(l.Version),
		Creation:  spdxCreation{Created: l.Created, Creators: []string{"Tool: caisson"}},
	}
	root := "SPDXRef-Layer"
	doc.Packages = append(doc.Packages, spdxPackage{ID: root, Name: name, Version: l.Version, Download: none,
		Concluded: none, Declared: none, Copyright: none, Purpose: "OPERATING-SYSTEM"})
	doc.Relationships = append(doc.Relationships, spdxRelationship{From: doc.ID, Type: "DESCRIBES", To: root})
	for _, p := range l.Packages {
		id := "SPDXRef-" + identifier(p.Name+"-"+p.Arch)
		pkg := spdxPackage{ID: id, Name: p.Name, Version: p.Version, Download: none, Concluded: none, Declared: none, Copyright: none,
			Refs: []spdxRef{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: PURL(p, suite)}}}
		if p.SHA256 != "" {
			pkg.Checksums = []spdxChecksum{{Algorithm: "SHA256", Value: p.SHA256}}
		}
		doc.Packages = append(doc.Packages, pkg)
		doc.Relationships = append(doc.Relationships, spdxRelationship{From: root, Type: "CONTAINS", To: id})
	}
	return json.Marshal(doc)
}

// identifier keeps what SPDX allows in an id.
func identifier(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-':
			return r
		case r == '+':
			return 'p'
		}
		return '-'
	}, s)
}

// PURL is the package's name among all packages of the world.
func PURL(p spec.InstalledPackage, suite string) string {
	u := "pkg:deb/debian/" + url.PathEscape(p.Name) + "@" + url.QueryEscape(p.Version) + "?arch=" + url.QueryEscape(p.Arch)
	if suite != "" {
		u += "&distro=" + url.QueryEscape(suite)
	}
	return u
}

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
			Byproducts: []resource{{Name: "sbom.spdx.json", MediaType: MediaTypeSPDX, Digest: map[string]string{"sha256": digest.Hex(sbomDigest)}}}},
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

// BuildTypeRelease names how caisson itself is made, for SLSA.
const BuildTypeRelease = "https://caisson.dev/release/v1"

// Program is a program of caisson itself.
type Program struct {
	File   string           // its name in the release
	SHA256 string           // of its bytes, in hexadecimal
	Info   *debug.BuildInfo // what the linker wrote into it
}

// Setting returns how a program was built by a key of [debug.BuildSetting], or nothing.
func (p Program) Setting(key string) string {
	return plain.First(p.Info.Settings, func(set debug.BuildSetting) bool { return set.Key == key }).Value
}

// modules returns the modules that a program is linked of, the standard library among them.
func (p Program) modules() []debug.Module {
	list := []debug.Module{{Path: "stdlib", Version: strings.TrimPrefix(p.Info.GoVersion, "go")}}
	for _, m := range p.Info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		list = append(list, *m)
	}
	return list
}

func modulePURL(m debug.Module) string {
	return "pkg:golang/" + (&url.URL{Path: m.Path}).EscapedPath() + "@" + url.QueryEscape(m.Version)
}

// SPDXOfPrograms lists the modules that programs are linked of, an SPDX 2.3 document.
// version is the release's, created its time in UTC, as RFC 3339 has it.
func SPDXOfPrograms(version, created string, programs []Program) ([]byte, error) {
	doc := spdxDocument{
		Version: "SPDX-2.3", License: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: "caisson " + version,
		Creation: spdxCreation{Created: created, Creators: []string{"Tool: caisson"}},
	}
	names := ""
	modules := map[string]debug.Module{}
	id := func(m debug.Module) string { return "SPDXRef-" + identifier(m.Path+"-"+m.Version) }
	for _, p := range programs {
		names += p.SHA256 + " " + p.File + "\n"
		of := "SPDXRef-" + identifier(p.File)
		doc.Packages = append(doc.Packages, spdxPackage{ID: of, Name: p.File, Version: version, Download: none,
			Concluded: none, Declared: "Apache-2.0", Copyright: none, Purpose: "APPLICATION",
			Checksums: []spdxChecksum{{Algorithm: "SHA256", Value: p.SHA256}}})
		doc.Relationships = append(doc.Relationships, spdxRelationship{From: doc.ID, Type: "DESCRIBES", To: of})
		for _, m := range p.modules() {
			modules[id(m)] = m
			doc.Relationships = append(doc.Relationships, spdxRelationship{From: of, Type: "STATIC_LINK", To: id(m)})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(modules)) {
		m := modules[id]
		doc.Packages = append(doc.Packages, spdxPackage{ID: id, Name: m.Path, Version: m.Version, Download: none,
			Concluded: none, Declared: none, Copyright: none, Purpose: "LIBRARY",
			Refs: []spdxRef{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: modulePURL(m)}}})
	}
	doc.Namespace = "https://caisson.dev/spdx/release/" + url.PathEscape(version) + "/" + digest.Hex(digest.Of([]byte(names)))
	return json.MarshalIndent(doc, "", "  ")
}

type statement struct {
	Type      string     `json:"_type"`
	Subject   []subject  `json:"subject"`
	Predicate string     `json:"predicateType"`
	Content   provenance `json:"predicate"`
}

type subject struct {
	Name   string            `json:"name"`
	Digest map[string]string `json:"digest"`
}

// Release holds the facts given to a release from outside: its version, such as v0.9.0, and
// whether that is a name only, which no tag of the commit has.
type Release struct {
	Version  string
	Untagged bool
}

// ProvenanceOfRelease says of which commit, by which tools and of which modules the files of
// a release were made: an in-toto statement with SLSA provenance. files are digests in
// hexadecimal, by name.
func ProvenanceOfRelease(release Release, files map[string]string, programs []Program) ([]byte, error) {
	s := statement{Type: "https://in-toto.io/Statement/v1", Predicate: "https://slsa.dev/provenance/v1"}
	s.Subject = plain.Each(slices.Sorted(maps.Keys(files)), func(name string) subject {
		return subject{name, map[string]string{"sha256": files[name]}}
	})
	s.Content = provenance{
		Definition: definition{Type: BuildTypeRelease, External: map[string]string{"version": release.Version}, Internal: map[string]string{}},
		Run:        run{Builder: builder{ID: "https://caisson.dev/release", Version: map[string]string{"caisson": release.Version}}},
	}
	if release.Untagged {
		s.Content.Definition.Internal["untagged"] = "true"
	}
	made := map[string]map[string]string{} // digests of what it is made of, by URI
	for _, p := range programs {
		s.Content.Run.Builder.Version["go"] = p.Info.GoVersion
		switch p.Setting("vcs.modified") {
		case "false":
		case "":
			s.Content.Definition.Internal["uncommittedChanges"] = "unknown"
		default:
			s.Content.Definition.Internal["uncommittedChanges"] = "true"
		}
		for _, set := range p.Info.Settings {
			switch set.Key {
			case "vcs.revision":
				made["git+https://caisson.dev/caisson@"+set.Value] = map[string]string{"gitCommit": set.Value}
			case "CGO_ENABLED", "-trimpath", "-tags":
				s.Content.Definition.Internal[p.File+" "+set.Key] = set.Value
			}
		}
		for _, m := range p.modules() {
			made[modulePURL(m)] = nil
			if sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:")); err == nil && len(sum) > 0 {
				made[modulePURL(m)] = map[string]string{"dirHash": hex.EncodeToString(sum)}
			}
		}
	}
	s.Content.Definition.Resolved = plain.Each(slices.Sorted(maps.Keys(made)), func(uri string) resource {
		return resource{URI: uri, Digest: made[uri]}
	})
	return json.MarshalIndent(s, "", "  ")
}
