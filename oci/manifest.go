// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"encoding/json"
	"fmt"

	"github.com/caisson-os/caisson/oci/internal/strict"
	"github.com/caisson-os/caisson/oci/refusal"
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

// Encode returns the bytes of m, an [Index] or a [Manifest]. They are what is
// pushed, hashed and signed: nobody encodes the same manifest twice.
func Encode[M Manifest | Index](m M) []byte {
	raw, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", m, err)) // plain structs and text only
	}
	return raw
}

// shape is what tells the kinds apart, and what must not be mixed.
type shape struct {
	MediaType string          `json:"mediaType"`
	Config    json.RawMessage `json:"config"`
	Layers    json.RawMessage `json:"layers"`
	Manifests json.RawMessage `json:"manifests"`
}

// ParseManifest reads a manifest and checks each descriptor in it.
func ParseManifest(raw []byte) (*Manifest, error) {
	var m Manifest
	var s shape
	if err := parse(raw, &m, &s, "manifest"); err != nil {
		return nil, err
	}
	if s.MediaType != MediaTypeManifest || s.Manifests != nil {
		return nil, refusal.New(refusal.MediaType, "%.80q is no image manifest", s.MediaType)
	}
	if m.SchemaVersion != 2 || s.Config == nil || s.Layers == nil {
		return nil, refusal.New(refusal.Shape, "manifest lacks schemaVersion 2, config or layers")
	}
	return &m, checkAll(append([]Descriptor{m.Config}, m.Layers...), m.Subject)
}

// ParseIndex reads an index and checks each descriptor in it. Descriptors of
// further indexes are refused: an index has one level.
func ParseIndex(raw []byte) (*Index, error) {
	var x Index
	var s shape
	if err := parse(raw, &x, &s, "index"); err != nil {
		return nil, err
	}
	if s.MediaType != MediaTypeIndex || s.Config != nil || s.Layers != nil {
		return nil, refusal.New(refusal.MediaType, "%.80q is no image index", s.MediaType)
	}
	if x.SchemaVersion != 2 {
		return nil, refusal.New(refusal.Shape, "index lacks schemaVersion 2")
	}
	for _, d := range x.Manifests {
		if d.MediaType == MediaTypeIndex {
			return nil, refusal.New(refusal.MediaType, "index within an index: %s", d.Digest)
		}
	}
	return &x, checkAll(x.Manifests, x.Subject)
}

func parse(raw []byte, v, s any, kind string) error {
	if len(raw) > MaxManifest {
		return refusal.New(refusal.Oversize, "%s of %d bytes", kind, len(raw))
	}
	for _, into := range []any{v, s} {
		if err := strict.Decode(raw, into); err != nil {
			return refusal.New(refusal.Malformed, "%s: %w", kind, err)
		}
	}
	return nil
}

func checkAll(list []Descriptor, subject *Descriptor) error {
	if len(list) > maxEntries {
		return refusal.New(refusal.Oversize, "%d descriptors in one manifest", len(list))
	}
	for i, d := range list {
		if err := d.check(fmt.Sprintf("descriptor %d", i)); err != nil {
			return err
		}
	}
	if subject != nil {
		return subject.check("subject")
	}
	return nil
}

// ParseLayoutIndex reads a layout's index.json: an index without a cap on its
// entries, whose media type may be absent.
func ParseLayoutIndex(raw []byte) (*Index, error) {
	var x Index
	if err := strict.Decode(raw, &x); err != nil {
		return nil, fmt.Errorf("index.json: %w", err)
	}
	if x.MediaType != "" && x.MediaType != MediaTypeIndex {
		return nil, fmt.Errorf("index.json has the media type %q", x.MediaType)
	}
	for i, d := range x.Manifests {
		if err := d.check(fmt.Sprintf("index.json: descriptor %d", i)); err != nil {
			return nil, err
		}
	}
	return &x, nil
}
