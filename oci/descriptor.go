// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/trust/refusal"
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
func (d Descriptor) Verify(data []byte) error {
	for _, c := range contentChecks {
		if err := c.ok(d, data); err != nil {
			return err
		}
	}
	return nil
}

// contentCheck compares content with its descriptor.
type contentCheck struct {
	name string
	ok   func(d Descriptor, data []byte) error
}

var contentChecks = []contentCheck{
	{"content size", func(d Descriptor, data []byte) error {
		if int64(len(data)) != d.Size {
			return refusal.New(refusal.Size, "%s has %d bytes where its descriptor says %d", d.Digest, len(data), d.Size)
		}
		return nil
	}},
	{"content digest", func(d Descriptor, data []byte) error {
		if got := Digest(data); got != d.Digest {
			return refusal.New(refusal.Digest, "content of %s is %s", d.Digest, got)
		}
		return nil
	}},
}

// descriptorCheck is one thing a descriptor must be, whatever it names.
type descriptorCheck struct {
	name string
	ok   func(d Descriptor, where string) error
}

var descriptorChecks = []descriptorCheck{
	{"digest form", func(d Descriptor, where string) error {
		if !ValidDigest(d.Digest) {
			return refusal.New(refusal.Shape, "%s has the digest %.80q, which is not sha256", where, d.Digest)
		}
		return nil
	}},
	{"size range", func(d Descriptor, where string) error {
		if d.Size < 0 || d.Size > MaxBlob {
			return refusal.New(refusal.Oversize, "%s has a size of %d bytes", where, d.Size)
		}
		return nil
	}},
	{"media type", func(d Descriptor, where string) error {
		if d.MediaType == "" {
			return refusal.New(refusal.Shape, "%s has no media type", where)
		}
		return nil
	}},
	{"inline data", func(d Descriptor, where string) error {
		if d.Data != nil && d.Verify(d.Data) != nil {
			return refusal.New(refusal.Inline, "%s holds inline data that is not %s", where, d.Digest)
		}
		return nil
	}},
}

func (d Descriptor) check(where string) error {
	for _, c := range descriptorChecks {
		if err := c.ok(d, where); err != nil {
			return err
		}
	}
	return nil
}
