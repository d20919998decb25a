// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Candidate holds the documents found under a name. None of it counts before [Accept].
type Candidate struct {
	Tag         string // under which it was found
	ETag        string // to ask with the next time
	NotModified bool   // nothing newer than the etag that was sent; the rest is empty
	Manifest    string // digest of the manifest
	Document    []byte // the overlay, or the document of fleet:current
	Bundles     [][]byte
}

// Overlay asks one place for the node's overlay under each tag in turn, see [Identity.Tags],
// and returns the first that exists. The etag is that of the overlay in effect.
func Overlay(ctx context.Context, src oci.Source, tags []string, etag string) (Candidate, error) {
	if len(tags) == 0 {
		return Candidate{}, errors.New("the machine has no name, MAC address or UUID to ask with")
	}
	for _, tag := range tags {
		c, err := document(ctx, src, oci.Artifact{Repo: oci.RepoNode, Type: oci.TypeOverlay, Limit: oci.MaxOverlay}, tag, etag)
		if !errors.Is(err, oci.ErrNotFound) {
			return c, err
		}
	}
	return Candidate{}, unpublishedError(tags)
}

// unpublishedError is returned where a machine has no overlay under any of its names.
type unpublishedError []string

func (e unpublishedError) Error() string {
	return fmt.Sprintf("no overlay for %s: %v", strings.Join(e, ", "), oci.ErrNotFound)
}
func (e unpublishedError) Unwrap() error { return oci.ErrNotFound }
func (e unpublishedError) Hint() string {
	return "one of these is the node's name in the site, or in its match; and is it published?"
}

// Current asks one place for fleet:current.
func Current(ctx context.Context, src oci.Source, etag string) (Candidate, error) {
	return document(ctx, src, oci.Artifact{Repo: oci.RepoFleet, Type: oci.TypeFleet, Limit: oci.MaxFleet}, "current", etag)
}

// Keys asks the places of src for a version of fleet:keys that accept takes.
func Keys[A any](ctx context.Context, src oci.Source, version uint64, accept func(Candidate) (A, error)) (A, error) {
	return oci.Accepted(ctx, src, oci.AtOnce, func(ctx context.Context, place oci.Source) (Candidate, error) {
		return document(ctx, place, oci.Artifact{Repo: oci.RepoFleet, Type: oci.TypeKeys, Limit: oci.MaxKeys}, KeysTag(version), "")
	}, accept)
}

// KeysTag is the tag of a version of fleet:keys.
func KeysTag(version uint64) string { return fmt.Sprintf("keys-%d", version) }

// Rescue asks the places of src for what lets an operator into a node, under each of its
// names, until offer takes one.
func Rescue(ctx context.Context, src oci.Source, names []string, offer func(Candidate) error) error {
	type found struct {
		list []Candidate
		errs []error
	}
	_, err := oci.Accepted(ctx, src, oci.AtOnce, func(ctx context.Context, place oci.Source) (f found, _ error) {
		for _, name := range names {
			c, err := document(ctx, place, oci.Artifact{Repo: oci.RepoRescue, Type: oci.TypeRescue, Limit: oci.MaxRescue}, name, "")
			if err == nil {
				f.list = append(f.list, c)
			}
			f.errs = append(f.errs, err)
		}
		return f, nil
	}, func(f found) (struct{}, error) {
		for _, c := range f.list {
			err := offer(c)
			if err == nil {
				return struct{}{}, nil
			}
			f.errs = append(f.errs, err)
		}
		return struct{}{}, errors.Join(f.errs...)
	})
	return err
}

func document(ctx context.Context, src oci.Source, of oci.Artifact, tag, etag string) (Candidate, error) {
	resp, err := src.Manifest(ctx, of.Repo, tag, etag)
	if err != nil {
		return Candidate{}, err
	}
	c := Candidate{Tag: tag, ETag: resp.ETag, NotModified: resp.NotModified, Manifest: resp.Digest}
	if c.NotModified {
		return c, nil
	}
	c.Document, c.Bundles, err = oci.ReadDocument(ctx, src, resp, of)
	if err != nil {
		return Candidate{}, fmt.Errorf("%s:%s: %w", of.Repo, tag, err)
	}
	return c, nil
}

// Save encodes a candidate with everything in it, for the state directory. [Load]
// gives it back.
func (c Candidate) Save() []byte { return saved(oci.TypeOverlay, c) }

// Load reads what [Candidate.Save] wrote. The bytes come from a disk that others
// may have had in hand, so it takes as little for granted as [Overlay] does.
func Load(data []byte) (Candidate, error) { return load(data, oci.TypeOverlay, oci.MaxOverlay) }

// SaveFleet is [Candidate.Save] for fleet:current.
func (c Candidate) SaveFleet() []byte { return saved(oci.TypeFleet, c) }

// LoadFleet reads what [Candidate.SaveFleet] wrote.
func LoadFleet(data []byte) (Candidate, error) { return load(data, oci.TypeFleet, oci.MaxFleet) }

// SaveKeys is [Candidate.Save] for a version of fleet:keys.
func (c Candidate) SaveKeys() []byte { return saved(oci.TypeKeys, c) }

// LoadKeys reads what [Candidate.SaveKeys] wrote.
func LoadKeys(data []byte) (Candidate, error) { return load(data, oci.TypeKeys, oci.MaxKeys) }

// SaveRescue is [Candidate.Save] for what lets an operator into a node, as a medium carries it.
func (c Candidate) SaveRescue() []byte { return saved(oci.TypeRescue, c) }

// LoadRescue reads what [Candidate.SaveRescue] wrote.
func LoadRescue(data []byte) (Candidate, error) { return load(data, oci.TypeRescue, oci.MaxRescue) }

// MaxSaved is the most that a saved candidate takes: base64 of all that a document and
// its bundles may have, and the manifest around them. One of a registry has less, since
// there large blobs are not inline.
const MaxSaved = (oci.MaxOverlay+oci.MaxBundles*oci.MaxBundle)/3*4 + 64<<10

// saved is a manifest whose layers are always inline.
func saved(kind string, c Candidate) []byte {
	return oci.Encode(oci.InlineManifest(kind, c.Document, c.Bundles...))
}

func load(data []byte, kind string, limit int64) (Candidate, error) {
	if len(data) > MaxSaved {
		return Candidate{}, refusal.New(refusal.Oversize, "saved candidate of %d bytes", len(data))
	}
	doc, bundles, err := oci.ReadKept(data, kind, limit)
	if err != nil {
		return Candidate{}, err
	}
	// Of these very bytes, so that "not modified" means them, whatever is written beside them.
	manifest, _ := oci.DocumentManifest(kind, doc, bundles...)
	return Candidate{ETag: oci.Digest(manifest), Document: doc, Bundles: bundles}, nil
}
