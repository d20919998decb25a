// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"github.com/caisson-os/caisson/internal/digest"
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
	if int64(len(c.data)) != c.Size {
		return refusal.New(refusal.Size, "%s has %d bytes where its descriptor says %d", c.Digest, len(c.data), c.Size)
	}
	return nil
}

func contentHasDigest(c content) error {
	if got := Digest(c.data); got != c.Digest {
		return refusal.New(refusal.Digest, "content of %s is %s", c.Digest, got)
	}
	return nil
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
