// SPDX-License-Identifier: Apache-2.0

package release

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/builder/sbom"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/refusal"
)

// maxReferrers is how many attachments of a layer are looked at.
const maxReferrers = 64

// Sign signs a layer's manifest, in the form of cosign sign, and attaches the
// signature.
func Sign(ctx context.Context, r *registry.Registry, manifest []byte, signer crypto.Signer, now time.Time) error {
	bundle, err := sign.SignArtifact(signer, oci.Digest(manifest))
	if err != nil {
		return err
	}
	return Attach(ctx, r, oci.Describe(oci.MediaTypeManifest, manifest), Bundle{bundle, sign.PredicateCosign, now})
}

// Bundle is a signature or an attestation.
type Bundle struct {
	Data      []byte
	Predicate string    // its type
	At        time.Time // when it was attached
}

// Attach attaches a bundle to a layer's manifest, or to an index of layers, with the annotations
// that cosign writes.
func Attach(ctx context.Context, r *registry.Registry, subject oci.Descriptor, b Bundle) error {
	_, err := r.Attach(ctx, oci.RepoLayer, subject, registry.Attachment{Type: oci.TypeBundle,
		Blob: oci.Describe(oci.TypeBundle, b.Data), Annotations: map[string]string{
			"dev.sigstore.bundle.content":       "dsse-envelope",
			"dev.sigstore.bundle.predicateType": b.Predicate,
			created:                             b.At.UTC().Format(time.RFC3339),
		}})
	return err
}

// Verify looks among a manifest's referrers for a release signature by one of
// the keys. Bad ones beside it do no harm.
func Verify(ctx context.Context, r *registry.Registry, digest string, keys []sign.Verifier) error {
	verdict := error(refusal.New(refusal.Unsigned, "layer %s has no signature", digest))
	ok, err := eachBundle(ctx, r, digest, oci.MaxBundle, func(bundle []byte) bool {
		err := sign.VerifyArtifact(bundle, digest, keys)
		// That an attestation is not a release says the least of all.
		if err != nil && (refusal.Of(err) != refusal.PredicateType || refusal.Of(verdict) == refusal.Unsigned) {
			verdict = fmt.Errorf("layer %s: %w", digest, err)
		}
		return err == nil
	})
	if ok {
		return nil
	}
	return cmp.Or(err, verdict)
}

// Verify looks for a release signature of the layer by one of the keys.
func (l Layer) Verify(ctx context.Context, keys []sign.Verifier) error {
	return Verify(ctx, l.registry, l.Digest, keys)
}

// eachBundle reads the bundles attached to a manifest until one is found good.
// The error is that of the last one that could not be read, a failure of the way.
func eachBundle(ctx context.Context, r *registry.Registry, digest string, limit int64, good func(bundle []byte) bool) (bool, error) {
	list, err := r.Referrers(ctx, oci.RepoLayer, digest)
	if err != nil {
		return false, fmt.Errorf("signatures of %s: %w", digest, err)
	}
	list = slices.DeleteFunc(list, func(d oci.Descriptor) bool { return rank(d) == 0 }) // many would hide it
	var unread error
	for _, d := range list[:min(len(list), maxReferrers)] {
		bundle, _, err := readBundle(ctx, r, d, limit)
		if err != nil { // an attachment of another kind, or a bad one
			if refusal.Of(err) == "" && !errors.Is(err, oci.ErrNotFound) {
				unread = fmt.Errorf("signatures of %s: %w", digest, err)
			}
			continue
		}
		if good(bundle) {
			return true, nil
		}
	}
	return false, unread
}

// readBundle reads the bundle in a referrer's manifest, whose type it returns. The descriptor's
// artifactType and annotations are not trusted: registries differ in both.
func readBundle(ctx context.Context, r *registry.Registry, d oci.Descriptor, limit int64) (bundle []byte, artifactType string, err error) {
	m, err := manifest(ctx, r, d.Digest)
	if err != nil {
		return nil, "", err
	}
	if len(m.Layers) != 1 || m.Layers[0].MediaType != oci.TypeBundle {
		return nil, "", refusal.New(refusal.MediaType, "%s holds no bundle", d.Digest)
	}
	bundle, err = oci.ReadBlob(ctx, r.Source(), oci.RepoLayer, m.Layers[0], limit)
	return bundle, m.ArtifactType, err
}

// manifest reads the manifest that a tag or digest of the layer repository names.
func manifest(ctx context.Context, r *registry.Registry, reference string) (*oci.Manifest, error) {
	raw, _, err := r.Manifest(ctx, oci.RepoLayer, reference)
	if err != nil {
		return nil, err
	}
	return oci.ParseManifest(raw)
}

// Referrer is something attached to a layer.
type Referrer struct {
	Digest    string `json:"digest"`
	Type      string `json:"type"`
	Predicate string `json:"predicate,omitempty"` // of a signature or an attestation, unverified
}

// Referrers lists the artifacts that are attached to a layer.
func (l Layer) Referrers(ctx context.Context) ([]Referrer, error) {
	list, err := l.registry.Referrers(ctx, oci.RepoLayer, l.Digest)
	if err != nil {
		return nil, fmt.Errorf("what is attached to %s: %w", l.Digest, err)
	}
	return append([]Referrer{}, plain.Each(list, func(d oci.Descriptor) Referrer {
		return Referrer{Digest: d.Digest, Type: d.ArtifactType, Predicate: predicateOf(ctx, l.registry, d)}
	})...), nil
}

// predicateOf reads the predicate type that a referrer's manifest names, which
// registries leave out of their lists.
func predicateOf(ctx context.Context, r *registry.Registry, d oci.Descriptor) string {
	m, err := manifest(ctx, r, d.Digest)
	if err != nil {
		return ""
	}
	return m.Annotations["dev.sigstore.bundle.predicateType"]
}

// SBOM returns the list of packages that the build attached to a layer, an SPDX 2.3
// document. It is not signed; the signed provenance names its digest.
func (l Layer) SBOM(ctx context.Context) ([]byte, error) {
	list, err := l.registry.Referrers(ctx, oci.RepoLayer, l.Digest)
	if err != nil {
		return nil, fmt.Errorf("what is attached to %s: %w", l.Digest, err)
	}
	for _, d := range list[:min(len(list), maxReferrers)] {
		// Not every registry says in its list what kind an attachment is.
		resp, err := l.registry.Source().Manifest(ctx, oci.RepoLayer, d.Digest, "")
		if err != nil {
			return nil, err
		}
		m, err := oci.ParseManifest(resp.Data)
		if err == nil && m.ArtifactType == sbom.MediaTypeSPDX && len(m.Layers) == 1 {
			return oci.ReadBlob(ctx, l.registry.Source(), oci.RepoLayer, m.Layers[0], oci.MaxAttested)
		}
	}
	return nil, cli.WithHint(fmt.Errorf("layer %s has no SBOM", l.Digest), "'caisson build' attaches one")
}

// Resigning is which layers another release key is to sign, and whose word it takes.
type Resigning struct {
	Layers  []string        // digests that somebody trusted names
	Trusted []sign.Verifier // who released them
	Stated  []sign.Verifier // who may have said of an index that it is current; those whose keys are stolen may not
	Seen    string          // digest of the index that was seen as current before: any of Trusted may have said so
	By      crypto.Signer
	Now     time.Time
	Dry     bool // verify all of it, and sign nothing
}

// ErrNotStated is returned where all layers are signed again, and what is current is not:
// nobody trusted has said so.
var ErrNotStated = errors.New("nobody trusted says what is current")

// Resign has another release key sign layers that one of the trusted keys released, and what
// is said of the index that is current. What it has signed already is left as it is, so a call
// that was cut is repeated.
func Resign(ctx context.Context, r *registry.Registry, what Resigning) error {
	pub, err := sign.NewVerifier(what.By.Public())
	if err != nil {
		return err
	}
	mine := []sign.Verifier{pub}
	for _, digest := range what.Layers {
		if Verify(ctx, r, digest, mine) == nil {
			continue
		}
		if err := Verify(ctx, r, digest, what.Trusted); err != nil {
			return err
		}
		resp, err := r.Source().Manifest(ctx, oci.RepoLayer, digest, "")
		if err != nil {
			return fmt.Errorf("layer %s: %w", digest, err)
		}
		if what.Dry {
			continue
		}
		if err := Sign(ctx, r, resp.Data, what.By, what.Now); err != nil {
			return fmt.Errorf("layer %s: %w", digest, err)
		}
	}
	set, err := Find(ctx, r, Current)
	if errors.Is(err, oci.ErrNotFound) {
		return nil
	}
	if err != nil || set.Index == "" {
		return err
	}
	if _, err := set.Statement(ctx, mine); err == nil {
		return nil
	}
	stated := what.Stated
	if set.Index == what.Seen {
		stated = slices.Concat(stated, what.Trusted)
	}
	said, err := set.Statement(ctx, stated)
	if refusal.Of(err) != "" {
		return fmt.Errorf("%w: it leads to %s: %w", ErrNotStated, set.Index, err)
	}
	if err != nil {
		return fmt.Errorf("layer:%s: %w", Current, err)
	}
	if what.Dry {
		return nil
	}
	resp, err := r.Source().Manifest(ctx, oci.RepoLayer, set.Index, "")
	if err != nil {
		return err
	}
	return said.attach(ctx, r, resp.Data, what.By, what.Now)
}

// created is the annotation that says when something was attached.
const created = "org.opencontainers.image.created"

// AttachRehearsal attaches the signed statement of a rehearsal to a layer. It has a type of its
// own: there may be many of one layer, and its signatures are looked for among few attachments.
func AttachRehearsal(ctx context.Context, r *registry.Registry, layer string, bundle []byte, now time.Time) error {
	raw, _, err := r.Manifest(ctx, oci.RepoLayer, layer)
	if err == nil {
		_, err = r.Attach(ctx, oci.RepoLayer, oci.Describe(oci.MediaTypeManifest, raw),
			registry.Attachment{Type: oci.TypeRehearsal, Blob: oci.Describe(oci.TypeBundle, bundle),
				Annotations: map[string]string{created: now.UTC().Format(time.RFC3339)}})
	}
	return fault.In(err, "attach to layer %s", layer)
}

// Rehearsals returns the bundles that [AttachRehearsal] attached to a layer, of the newest
// attachments. None of them is verified.
func Rehearsals(ctx context.Context, r *registry.Registry, layer string) (bundles [][]byte, err error) {
	list, err := r.Referrers(ctx, oci.RepoLayer, layer)
	if err != nil {
		return nil, fmt.Errorf("rehearsals of layer %s: %w", layer, err)
	}
	slices.Reverse(list) // where the list has no annotations, the last one is the newest
	slices.SortStableFunc(list, func(a, b oci.Descriptor) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.Annotations[created], a.Annotations[created]))
	})
	for _, d := range list[:min(len(list), maxReferrers)] {
		bundle, kind, err := readBundle(ctx, r, d, oci.MaxBundle)
		switch {
		case err == nil && kind != oci.TypeRehearsal: // a signature
		case err == nil:
			bundles = append(bundles, bundle)
		case refusal.Of(err) == "" && !errors.Is(err, oci.ErrNotFound): // else it is an attachment of another kind, or a bad one
			return nil, fmt.Errorf("rehearsals of layer %s: %w", layer, err)
		}
	}
	return bundles, nil
}

// rank has rehearsals come first. Not every registry says in its list what kind an attachment is.
func rank(d oci.Descriptor) int {
	if d.ArtifactType == oci.TypeRehearsal {
		return 0
	}
	return 1
}
