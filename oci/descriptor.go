// SPDX-License-Identifier: Apache-2.0

// Package oci reads and encodes caisson's artifacts: descriptors, manifests,
// indexes, and the signed documents that manifests hold.
//
// It knows what an artifact is, not how it travels: artifacts come from a [Source],
// which oci/pull opens, and go out through oci/registry. Parsing is strict, and what
// is read is capped. The package trusts nothing: tags, annotations and media types
// are hints, what counts is the digest by which something was asked for. Whether a
// document may act is decided by package trust, with the signatures of oci/sign.
//
// Content that is not what it should be is an error of spec/refusal, absent content
// is [ErrNotFound]; any other error is one of the source: retry. Several places are
// asked by [InOrder] or [Anywhere], so that one that serves rubbish does not hide
// the next.
//
// It imports the standard library, spec/refusal and small packages of internal.
// layers and builder do not import it. The formats are the OCI image and
// distribution specifications 1.1.
package oci

import (
	"encoding/json"
	"fmt"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/mediatype"
	"github.com/caisson-os/caisson/oci/internal/strict"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Descriptor names content: what it is, its digest, its size.
type Descriptor struct {
	MediaType    string            `json:"mediaType"`
	Digest       string            `json:"digest"`
	Size         int64             `json:"size"`
	Data         []byte            `json:"data,omitempty"` // the content itself, when small
	ArtifactType string            `json:"artifactType,omitempty"`
	Annotations  map[string]string `json:"annotations,omitempty"`
	Platform     *Platform         `json:"platform,omitempty"`
}

// Platform says on which machines a manifest in an index works.
type Platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Variant      string `json:"variant,omitempty"`
}

// Describe returns the descriptor of data, with data inline.
func Describe(mediaType string, data []byte) Descriptor {
	return Descriptor{MediaType: mediaType, Digest: Digest(data), Size: int64(len(data)), Data: data}
}

// Bare is the descriptor without inline data.
func (d Descriptor) Bare() Descriptor {
	d.Data = nil
	return d
}

// Digest returns the digest of data, "sha256:<hex>".
func Digest(data []byte) string { return digest.Of(data) }

// ValidDigest reports whether s is a digest as package digest writes it.
func ValidDigest(s string) bool { return digest.Valid(s) }

// Verify refuses data that is not what d names.
func (d Descriptor) Verify(data []byte) error { return whole.content.Run(content{d, data}) }

func contentHasSize(c content) error {
	return refusal.If(int64(len(c.data)) != c.Size, refusal.Size, "%s has %d bytes where its descriptor says %d", c.Digest, len(c.data),
		c.Size)
}

func contentHasDigest(c content) error {
	got := Digest(c.data)
	return refusal.If(got != c.Digest, refusal.Digest, "content of %s is %s", c.Digest, got)
}

func digestHasForm(d placed) error {
	if !ValidDigest(d.Digest) {
		return refusal.New(refusal.Shape, "%s has the digest %.80q, which is not sha256", d.where, d.Digest)
	}
	return nil
}

func sizeInRange(d placed) error {
	if d.Size < 0 || d.Size > MaxBlob {
		return refusal.New(refusal.Oversize, "%s has a size of %d bytes", d.where, d.Size)
	}
	return nil
}

func mediaTypeIsThere(d placed) error {
	if d.MediaType == "" {
		return refusal.New(refusal.Shape, "%s has no media type", d.where)
	}
	return nil
}

func inlineDataFits(d placed) error {
	if d.Data != nil && d.rules.content.Run(content{d.Descriptor, d.Data}) != nil {
		return refusal.New(refusal.Inline, "%s holds inline data that is not %s", d.where, d.Digest)
	}
	return nil
}

func (r rules) checkDescriptor(d Descriptor, where string) error {
	return r.descriptor.Run(placed{d, where, r})
}

// Media types of the OCI specifications.
const (
	MediaTypeManifest = "application/vnd.oci.image.manifest.v1+json"
	MediaTypeIndex    = "application/vnd.oci.image.index.v1+json"
	MediaTypeEmpty    = "application/vnd.oci.empty.v1+json"
)

// Types of caisson's artifacts and of the blobs in them.
const (
	TypeLayer       = "application/vnd.caisson.layer.v1+json"        // artifactType of a system layer
	TypeOverlay     = "application/vnd.caisson.overlay.v1+json"      // artifactType of a node's overlay, and of its document
	TypeFleet       = "application/vnd.caisson.fleet.v1+json"        // artifactType of fleet:current, and of its document
	TypeKeys        = "application/vnd.caisson.keys.v1+json"         // artifactType of a version of fleet:keys, and of its document
	TypeRescue      = "application/vnd.caisson.rescue.v1+json"       // artifactType of what lets an operator in, and of its document
	TypeRollout     = "application/vnd.caisson.rollout.v1+json"      // artifactType of a rollout's plan, and of its document
	TypeFleetIndex  = "application/vnd.caisson.fleet-index.v1+json"  // artifactType of fleet:index, and of its document
	TypeFleetShard  = "application/vnd.caisson.fleet-shard.v1+json"  // artifactType of a part of fleet:index, and of its document
	TypeGone        = "application/vnd.caisson.gone.v1+json"         // artifactType of what a removed tag leads to
	TypeLayerConfig = "application/vnd.caisson.layer.config.v1+json" // a layer's description, spec.Layer
	TypeLedger      = "application/vnd.caisson.accounts.v1+json"     // artifactType of a fleet's account ledger, and of its document
	// what a node mounts of a repository of git; its config has this type, too
	TypeService   = "application/vnd.caisson.service.v1+json"
	TypeLoader    = "application/vnd.caisson.loader.v1+json"    // artifactType of what disks start
	TypeReport    = "application/vnd.caisson.report.v1+json"    // artifactType of a node's signed report, and of its document
	TypeRehearsal = "application/vnd.caisson.rehearsal.v1+json" // artifactType of the signed statement of a rehearsal
	TypeUKI       = mediatype.UKI
	TypeESP       = mediatype.ESP
	TypeSquashfs  = mediatype.Squashfs
	TypeChunks    = mediatype.Chunks
	TypeRecipe    = "application/vnd.caisson.recipe.v1+json"        // what a layer was made of, spec.Recipe
	TypeBundle    = "application/vnd.dev.sigstore.bundle.v0.3+json" // a sigstore bundle
)

// Repositories below a registry's prefix.
const (
	RepoLayer   = "layer"
	RepoNode    = "node"
	RepoFleet   = "fleet"
	RepoService = "service"
	RepoReport  = "report"
	RepoLoader  = "loader"
	RepoRescue  = "rescue"
)

// Annotations. They are hints for people and for selection, never trusted.
const (
	AnnotationVariant = "dev.caisson.variant"               // on the descriptors of a layer index
	AnnotationGone    = "dev.caisson.gone"                  // the tag that was removed, see TypeGone
	AnnotationRefName = "org.opencontainers.image.ref.name" // in a layout's index.json
)

// Caps on what is read from outside.
const (
	MaxManifest = 1 << 20   // bytes of a manifest or an index
	MaxOverlay  = 2 << 20   // bytes of an overlay
	MaxBundle   = 32 << 10  // bytes of a signature bundle
	MaxAttested = 4 << 20   // bytes of an attestation's bundle: provenance names every package
	MaxBundles  = 16        // bundles beside one document
	MaxFleet    = 64 << 10  // bytes of fleet:current's document
	MaxKeys     = 64 << 10  // bytes of the document of a version of fleet:keys
	MaxRescue   = 32 << 10  // bytes of the document of a statement that lets an operator into a node
	MaxConfig   = 16 << 20  // bytes of a layer's description
	MaxInline   = 1 << 20   // bytes of a manifest that holds its blobs inline; not above MaxManifest
	MaxBlob     = 64 << 30  // bytes of an image
	MaxLayout   = 512 << 20 // bytes of a layout's index.json: a fleet of a million nodes has some 270 MB
	maxEntries  = 4096      // descriptors in a manifest or an index
	maxValues   = 64 << 10  // keys and values in one: 4096 descriptors with seven each, and annotations
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
	return refusal.If(len(p.raw) > MaxManifest, refusal.Oversize, "manifest of %d bytes", len(p.raw))
}

// entriesCapped counts before anything is decoded: 4 bytes of text can be a
// descriptor of 200 bytes.
func entriesCapped(p *parsed) error {
	err := (strict.Caps{Values: maxValues, Entries: maxEntries}).Check(p.raw)
	return refusal.If(err != nil, refusal.Oversize, "manifest: %w", err)
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
	return refusal.If(p.MediaType != p.want, refusal.MediaType, "the bytes name the media type %.80q, not %q", p.MediaType, p.want)
}

// kindsAreNotMixed: one text must not be a manifest to some and an index to others.
func kindsAreNotMixed(p *parsed) error {
	manifest := bool(p.Config || p.Layers)
	return refusal.If(manifest == (p.want == MediaTypeIndex) || bool(p.Manifests) == (p.want == MediaTypeManifest), refusal.MediaType,
		"manifest and index at once, or neither")
}

func versionIsTwo(p *parsed) error {
	return refusal.If(p.version != 2, refusal.Shape, "schemaVersion is %d", p.version)
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
