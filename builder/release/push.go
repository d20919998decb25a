// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"context"
	"crypto"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/builder"
	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Pusher pushes built layers. Either key may be nil: then nothing is signed in
// that role.
type Pusher struct {
	Registry *registry.Registry
	Release  crypto.Signer   // signs layers
	Trusted  []sign.Verifier // whose ledger counts, the site's release keys; nil is the key of Release alone
	Attest   crypto.Signer   // signs the provenance
	Tool     string          // version of the program, for the provenance
	Now      time.Time
	Seen     time.Time           // when the newest index that the publisher remembers was made current, by whichever key
	Progress func(builder.Event) // may be nil
}

// KeepTag returns the tag that keeps a layer from a registry's garbage collection
// when its version tag moves on. It is not "sha256-<hex>": that tag belongs to
// the list of referrers on registries without the referrers API.
func KeepTag(digest string) string { return "keep-" + strings.Replace(digest, ":", "-", 1) }

// ReservedTag reports whether a tag of the layer repository is caisson's own and
// cannot be a version.
func ReservedTag(tag string) bool {
	return tag == Current || strings.HasPrefix(tag, "keep-") || strings.HasPrefix(tag, "sha256-")
}

// Push pushes one variant, signs and describes it, and returns its descriptor for
// the index. Suite is the distribution's release, for its descriptions.
func (p *Pusher) Push(ctx context.Context, r *builder.Result, suite string) (oci.Descriptor, error) {
	config, err := spec.Encode(r.Layer)
	if err != nil {
		return oci.Descriptor{}, err
	}
	m := oci.Manifest{SchemaVersion: 2, MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer,
		Config: oci.Describe(oci.TypeLayerConfig, config).Bare(),
		Annotations: map[string]string{
			"org.opencontainers.image.created": r.Layer.Created, "org.opencontainers.image.version": r.Layer.Version,
			oci.AnnotationVariant: r.Layer.Variant,
		},
	}
	up := upload{variant: r.Layer.Variant, say: p.Progress}
	for _, blob := range r.Blobs {
		up.of += blob.Size
	}
	read := int64(0)
	for _, blob := range r.Blobs {
		d := oci.Descriptor{MediaType: blob.MediaType, Digest: blob.Digest, Size: blob.Size,
			Annotations: map[string]string{"org.opencontainers.image.title": blob.Title}}
		if err := p.Registry.PutBlob(ctx, oci.RepoLayer, d, up.opener(blob.Path, blob.Title)); err != nil {
			return oci.Descriptor{}, fmt.Errorf("%s: %w", blob.Title, err)
		}
		read += blob.Size
		up.set(read) // whether or not it had to be read for that
		m.Layers = append(m.Layers, d)
	}
	recipe := oci.Describe(oci.TypeRecipe, r.Recipe)
	if err := p.Registry.PutData(ctx, oci.RepoLayer, recipe); err != nil {
		return oci.Descriptor{}, fmt.Errorf("recipe: %w", err)
	}
	recipe = recipe.Bare()
	recipe.Annotations = map[string]string{"org.opencontainers.image.title": "recipe"}
	m.Layers = append(m.Layers, recipe)
	if err := p.Registry.PutData(ctx, oci.RepoLayer, oci.Describe(oci.TypeLayerConfig, config)); err != nil {
		return oci.Descriptor{}, err
	}
	raw := oci.Encode(m)
	digest, err := p.Registry.PutManifest(ctx, oci.RepoLayer, oci.MediaTypeManifest, raw, KeepTag(oci.Digest(raw)))
	if err != nil {
		return oci.Descriptor{}, err
	}
	d := oci.Descriptor{MediaType: oci.MediaTypeManifest, ArtifactType: oci.TypeLayer, Digest: digest, Size: int64(len(raw)),
		Platform:    &oci.Platform{OS: "linux", Architecture: r.Layer.Arch},
		Annotations: map[string]string{oci.AnnotationVariant: r.Layer.Variant}}
	if err := p.sign(ctx, raw); err != nil {
		return d, err
	}
	return d, p.describe(ctx, d, raw, r.Layer, suite)
}

// sign attaches the release key's signature unless it is there already: the
// same layer built again is the same layer.
func (p *Pusher) sign(ctx context.Context, raw []byte) error {
	if p.Release == nil {
		return nil
	}
	if pub, err := sign.NewVerifier(p.Release.Public()); err == nil && Verify(ctx, p.Registry, oci.Digest(raw), []sign.Verifier{pub}) == nil {
		return nil
	}
	return fault.In(Sign(ctx, p.Registry, raw, p.Release, p.Now), "sign")
}

// Index pushes the list of variants, with the account ledger beside them, under the
// version's tag, states that it is the fleet's newest, and makes it [Current]. It returns
// the index's digest.
func (p *Pusher) Index(ctx context.Context, variants []oci.Descriptor, accounts []spec.Account, fleet, version string) (string, error) {
	if !oci.ValidTag(version) {
		return "", fmt.Errorf("version %q cannot be a tag", version)
	}
	beside, err := p.ledger(ctx, fleet, accounts)
	if err != nil {
		return "", fmt.Errorf("push the account ledger: %w", err)
	}
	entries := append(slices.Clone(variants), beside)
	raw := oci.Encode(oci.Index{SchemaVersion: 2, MediaType: oci.MediaTypeIndex, ArtifactType: oci.TypeLayer, Manifests: entries})
	digest, err := p.Registry.PutManifest(ctx, oci.RepoLayer, oci.MediaTypeIndex, raw, version)
	if err != nil {
		return "", fmt.Errorf("push the index: %w", err)
	}
	if p.Release != nil {
		was := ""
		if resp, err := p.Registry.Source().Manifest(ctx, oci.RepoLayer, Current, ""); err == nil {
			was = resp.Digest
		}
		if err := p.state(ctx, raw, was, Statement{Fleet: fleet, Version: version, IssuedAt: p.after(ctx, was)}); err != nil {
			return "", fmt.Errorf("sign the index: %w", err)
		}
	}
	if _, err := p.Registry.PutManifest(ctx, oci.RepoLayer, oci.MediaTypeIndex, raw, Current); err != nil {
		return "", fmt.Errorf("push the index: %w", err)
	}
	return digest, nil
}

// Pushed holds the output of build -o json. Before it, on standard error, come the
// events of builder.Event, one a line.
type Pushed struct {
	Index   string          `json:"index"` // digest
	Version string          `json:"version"`
	Layers  []PushedVariant `json:"layers"`
}

// PushedVariant is one variant in [Pushed].
type PushedVariant struct {
	Variant string `json:"variant"`
	Digest  string `json:"digest"`
}

// PushAll pushes what [Bake] made of a site as one version, with the account ledger beside
// it, and makes it [Current]. A variant that is as a layer of the current version stays
// that layer, under its older version and name: another digest would have its nodes start
// over for nothing.
func (p *Pusher) PushAll(ctx context.Context, fleet, version string, built *Built) (*Pushed, error) {
	if err := p.overtaken(ctx, fleet, built.Ledger); err != nil { // before gigabytes are pushed
		return nil, err
	}
	pushed := &Pushed{Version: version}
	var entries []oci.Descriptor
	released := p.released(ctx)
	for i, v := range built.Variants {
		r := built.Results[i]
		r.Layer.Version = version
		for _, old := range released {
			if same, err := sameButNamed(old, r.Layer); err != nil {
				return nil, err
			} else if same {
				r.Layer.Version, r.Layer.Variant = old.Version, old.Variant
				break
			}
		}
		suite := ""
		if v.Recipe.Base.Debian != nil {
			suite = v.Recipe.Base.Debian.Suite
		}
		d, err := p.Push(ctx, r, suite)
		if err != nil {
			return nil, fmt.Errorf("push variant %s: %w", v.Name, err)
		}
		entries = append(entries, d)
		pushed.Layers = append(pushed.Layers, PushedVariant{Variant: v.Name, Digest: d.Digest})
	}
	if err := p.overtaken(ctx, fleet, built.Ledger); err != nil { // the push took its time
		return nil, err
	}
	var err error
	pushed.Index, err = p.Index(ctx, entries, built.Ledger, fleet, version)
	return pushed, err
}

// released returns the layers of the current version that the pusher's own key
// released; none where that cannot be told.
func (p *Pusher) released(ctx context.Context) (out []spec.Layer) {
	if p.Release == nil {
		return nil
	}
	key, err := sign.NewVerifier(p.Release.Public())
	if err != nil {
		return nil
	}
	layers, err := Open(ctx, p.Registry, Current)
	if err != nil {
		return nil // nothing is there, or nothing that is known; what is wrong with the registry, pushing tells
	}
	return plain.Pick(layers, func(l Layer) (spec.Layer, bool) {
		return l.Layer, Verify(ctx, p.Registry, l.Digest, []sign.Verifier{key}) == nil
	})
}

// sameButNamed reports whether two layers differ in nothing but their version and the name
// of their variant. The name follows from what else the site has: a variant that becomes
// the default is no other layer.
func sameButNamed(a, b spec.Layer) (bool, error) {
	a.Version, a.Variant = b.Version, b.Variant
	was, err := spec.Encode(a)
	if err != nil {
		return false, err
	}
	is, err := spec.Encode(b)
	return bytes.Equal(was, is), err
}

// sayEvery is how often an upload says how far it has come.
const sayEvery = 200 * time.Millisecond

// upload is the pushing of one variant's blobs, as far as they had to be read.
type upload struct {
	variant string
	say     func(builder.Event)

	mu       sync.Mutex // a registry's client reads where it likes
	read, of int64
	said     time.Time
}

// opener opens a file that is counted while it is read. One that is read again,
// because the registry wanted it again, counts once.
func (u *upload) opener(path, title string) registry.Opener {
	if u.say == nil {
		return func() (io.ReadCloser, error) { return os.Open(path) }
	}
	u.mu.Lock()
	begin := u.read
	u.mu.Unlock()
	return func() (io.ReadCloser, error) {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		u.set(begin)
		return &counted{File: f, upload: u, title: title}, nil
	}
}

func (u *upload) set(read int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.read = read
}

type counted struct {
	*os.File
	upload *upload
	title  string
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.File.Read(p)
	u := c.upload
	u.mu.Lock()
	defer u.mu.Unlock()
	u.read += int64(n)
	if now := time.Now(); now.Sub(u.said) >= sayEvery {
		u.said = now
		u.say(builder.Event{Variant: u.variant, Step: "layer", State: "push", Bytes: min(u.read, u.of), OfBytes: u.of, Text: c.title})
	}
	return n, err
}

// written adds to what an archive does not have where the site asks for it.
func written(s *site.Site, err error) error {
	var at report.Pos
	if unknown, is := errors.AsType[*apt.Unknown](err); is {
		at = s.PackageAt(unknown.Package, unknown.Version)
	} else if none, is := errors.AsType[*apt.NoSuite](err); is {
		at = s.SuiteAt(none.Suite)
	}
	if at == (report.Pos{}) {
		return err
	}
	return fmt.Errorf("%s: %w", at, err)
}
