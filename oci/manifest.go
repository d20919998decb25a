// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"fmt"

	"github.com/caisson-os/caisson/oci/internal/strict"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Manifest is an OCI image manifest.
type Manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Config        Descriptor        `json:"config"`
	Layers        []Descriptor      `json:"layers"`
	Subject       *Descriptor       `json:"subject,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// Index is an OCI image index.
type Index struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	ArtifactType  string            `json:"artifactType,omitempty"`
	Manifests     []Descriptor      `json:"manifests"`
	Subject       *Descriptor       `json:"subject,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// Empty is the content of a config that says nothing.
var Empty = []byte("{}")

// Encode returns the bytes of m, an [Index], a [Manifest] or what one of them names. They are
// pushed, hashed and signed: nobody encodes the same manifest twice.
func Encode[M Manifest | Index | Descriptor](m M) []byte {
	raw, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", m, err)) // plain structs and text only
	}
	return raw
}

// parsed is a manifest or an index on its way through the checks.
type parsed struct {
	raw  []byte
	want string // media type
	into any    // *Manifest or *Index
	shape
	list    []Descriptor
	subject *Descriptor
	version int
	rules   rules // for the descriptors
}

// shape holds the fields that tell the kinds apart, and that must not be mixed.
type shape struct {
	MediaType string  `json:"mediaType"`
	Config    present `json:"config"`
	Layers    present `json:"layers"`
	Manifests present `json:"manifests"`
}

// present is a key that is there, whatever its value: nothing is copied.
type present bool

func (p *present) UnmarshalJSON([]byte) error {
	*p = true
	return nil
}

// ParseManifest reads a manifest and checks each descriptor in it.
func ParseManifest(raw []byte) (*Manifest, error) { return whole.ParseManifest(raw) }

// ParseIndex reads an index and checks each descriptor in it. Descriptors of
// further indexes are refused: an index has one level.
func ParseIndex(raw []byte) (*Index, error) { return whole.ParseIndex(raw) }

func (r rules) ParseManifest(raw []byte) (*Manifest, error) {
	var m Manifest
	if err := r.parse.Run(&parsed{raw: raw, want: MediaTypeManifest, into: &m, rules: r}); err != nil {
		return nil, err
	}
	return &m, nil
}

func (r rules) ParseIndex(raw []byte) (*Index, error) {
	var x Index
	if err := r.parse.Run(&parsed{raw: raw, want: MediaTypeIndex, into: &x, rules: r}); err != nil {
		return nil, err
	}
	return &x, nil
}

func manifestCapped(p *parsed) error {
	if len(p.raw) > MaxManifest {
		return refusal.New(refusal.Oversize, "manifest of %d bytes", len(p.raw))
	}
	return nil
}

// entriesCapped counts before anything is decoded: 4 bytes of text can be a
// descriptor of 200 bytes.
func entriesCapped(p *parsed) error {
	if err := (strict.Caps{Values: maxValues, Entries: maxEntries}).Check(p.raw); err != nil {
		return refusal.New(refusal.Oversize, "manifest: %w", err)
	}
	return nil
}

func manifestParses(p *parsed) error {
	for _, into := range []any{p.into, &p.shape} {
		if err := strict.Decode(p.raw, into); err != nil {
			return refusal.New(refusal.Malformed, "manifest: %w", err)
		}
	}
	p.spread()
	return nil
}

// spread puts what later checks need beside the parsed document.
func (p *parsed) spread() {
	switch m := p.into.(type) {
	case *Manifest:
		p.list, p.subject, p.version = append([]Descriptor{m.Config}, m.Layers...), m.Subject, m.SchemaVersion
	case *Index:
		p.list, p.subject, p.version = m.Manifests, m.Subject, m.SchemaVersion
	}
}

func kindIsWanted(p *parsed) error {
	if p.MediaType != p.want {
		return refusal.New(refusal.MediaType, "the bytes name the media type %.80q, not %q", p.MediaType, p.want)
	}
	return nil
}

// kindsAreNotMixed: one text must not be a manifest to some and an index to others.
func kindsAreNotMixed(p *parsed) error {
	manifest := bool(p.Config || p.Layers)
	if manifest == (p.want == MediaTypeIndex) || bool(p.Manifests) == (p.want == MediaTypeManifest) {
		return refusal.New(refusal.MediaType, "manifest and index at once, or neither")
	}
	return nil
}

func versionIsTwo(p *parsed) error {
	if p.version != 2 {
		return refusal.New(refusal.Shape, "schemaVersion is %d", p.version)
	}
	return nil
}

func indexIsFlat(p *parsed) error {
	for _, d := range p.list {
		if p.want == MediaTypeIndex && d.MediaType == MediaTypeIndex {
			return refusal.New(refusal.MediaType, "index within an index: %s", d.Digest)
		}
	}
	return nil
}

func descriptorsAreSound(p *parsed) error {
	for i, d := range p.list {
		if err := p.rules.checkDescriptor(d, fmt.Sprintf("descriptor %d", i)); err != nil {
			return err
		}
	}
	if p.subject != nil {
		return p.rules.checkDescriptor(*p.subject, "subject")
	}
	return nil
}
