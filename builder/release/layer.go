// SPDX-License-Identifier: Apache-2.0

package release

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/caisson-os/caisson/builder/accounts"
	"github.com/caisson-os/caisson/builder/sbom"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/keychain"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Current is the tag of the newest layers.
const Current = "current"

// Layer is a layer in a registry. Its signature is not checked, see [Verify].
type Layer struct {
	trust.Described
	Digest string // of the manifest

	registry *registry.Registry
}

// From returns the registry that has the layer.
func (l Layer) From() *registry.Registry { return l.registry }

// Bytes returns the number of bytes that a node without anything fetches.
func (l Layer) Bytes() (n int64) {
	for _, i := range l.Images {
		n += i.Size
	}
	return n + l.Kernel.Size + l.Initrd.Size
}

// Made returns the recipe of the layer, and the paths of keys of a later release that
// are left out of it, see spec.DecodeKnown.
func (l Layer) Made(ctx context.Context) (r *spec.Recipe, leftOut []string, err error) {
	for _, d := range l.Manifest.Layers {
		if d.MediaType != oci.TypeRecipe || d.Digest != l.Recipe {
			continue
		}
		data, err := oci.ReadBlob(ctx, l.registry.Source(), oci.RepoLayer, d, oci.MaxConfig)
		if err != nil {
			return nil, nil, fmt.Errorf("recipe of layer %s: %w", l.Digest, err)
		}
		r = new(spec.Recipe)
		if leftOut, err = spec.DecodeKnown(data, r); err != nil {
			return nil, nil, refusal.New(refusal.Layer, "recipe of layer %s: %w", l.Digest, err)
		}
		return r, leftOut, nil
	}
	return nil, nil, refusal.New(refusal.Layer, "layer %s does not hold its recipe", l.Digest)
}

// Read reads one layer by its manifest's digest.
func Read(ctx context.Context, r *registry.Registry, digest string) (Layer, error) {
	l, err := trust.Layer(ctx, r.Source(), digest)
	if err != nil {
		return Layer{}, err
	}
	return Layer{Described: *l, Digest: digest, registry: r}, nil
}

// Open returns the layers of [Find].
func Open(ctx context.Context, r *registry.Registry, reference string) ([]Layer, error) {
	s, err := Find(ctx, r, reference)
	if err != nil {
		return nil, err
	}
	return s.Layers, nil
}

// Find follows a tag, or the digest of an index or a manifest, down to layers.
func Find(ctx context.Context, r *registry.Registry, reference string) (*Set, error) {
	if !oci.ValidTag(reference) && !oci.ValidDigest(reference) {
		return nil, cli.Usage("a digest is sha256:<64 hex digits>", "%.80q is neither a tag nor a digest", reference)
	}
	p, err := follow(ctx, r, reference)
	if errors.Is(err, oci.ErrNotFound) {
		hint := "caisson prune " + r.Ref().String() + " --dry-run lists the layers"
		if reference == Current {
			hint = "no layer was pushed there yet: caisson build FILE --to " + r.Ref().String()
		}
		return nil, cli.WithHint(fmt.Errorf("layer:%s: %w", reference, oci.ErrNotFound), hint)
	}
	if err != nil {
		return nil, fmt.Errorf("layer:%s: %w", reference, err)
	}
	s := &Set{Index: p.index, ledger: p.ledger, registry: r}
	for _, digest := range p.layers {
		l, err := Read(ctx, r, digest)
		if err != nil {
			return nil, err
		}
		s.Layers = append(s.Layers, l)
	}
	return s, nil
}

// pointed names the documents that a reference leads to, by digest.
type pointed struct {
	index  string // "" when it is one layer's manifest
	layers []string
	ledger string // of the index
}

// follow reads what a reference names.
func follow(ctx context.Context, r *registry.Registry, reference string) (p pointed, err error) {
	raw, _, err := r.Manifest(ctx, oci.RepoLayer, reference)
	if err != nil {
		return p, err
	}
	list, err := oci.ParseIndex(raw)
	if refusal.Of(err) == refusal.MediaType { // one layer's own manifest
		return pointed{layers: []string{oci.Digest(raw)}}, nil
	}
	if err != nil {
		return p, err
	}
	p.index = oci.Digest(raw)
	for _, d := range list.Manifests {
		switch {
		case d.ArtifactType != oci.TypeLedger:
			p.layers = append(p.layers, d.Digest)
		case p.ledger != "":
			return p, refusal.New(refusal.Malformed, "the index %s has two account ledgers", p.index)
		default:
			p.ledger = d.Digest
		}
	}
	if p.ledger == "" {
		return p, refusal.New(refusal.Malformed, "the index %s has no account ledger", p.index)
	}
	return p, nil
}

// ForVariant returns the layer of a variant: the one that was made from its recipe, its
// identity, where that is known; else the one of its name. What decides is the
// description; the annotations of the index are not looked at. A single layer serves all.
func ForVariant(layers []Layer, recipe, variant string) (Layer, error) {
	for _, same := range []func(Layer) bool{
		func(l Layer) bool { return digest.Hex(l.Recipe) == recipe && recipe != "" },
		func(l Layer) bool { return l.Variant == variant },
	} {
		if i := slices.IndexFunc(layers, same); i >= 0 {
			return layers[i], nil
		}
	}
	if len(layers) == 1 {
		return layers[0], nil
	}
	return Layer{}, cli.WithHint(fmt.Errorf("no layer of variant %q", variant), "run caisson build, then publish again")
}

// describe attaches the SBOM, and with an attestation key the signed provenance,
// which names the SBOM by digest.
func (p *Pusher) describe(ctx context.Context, d oci.Descriptor, raw []byte, l spec.Layer, suite string) error {
	spdx, err := sbom.SPDX(l, suite)
	if err != nil {
		return err
	}
	list, err := p.Registry.Referrers(ctx, oci.RepoLayer, d.Digest)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(r oci.Descriptor) bool { return r.ArtifactType == sbom.MediaTypeSPDX }) {
		if _, err := p.Registry.Attach(ctx, oci.RepoLayer, d,
			registry.Attachment{Type: sbom.MediaTypeSPDX, Blob: oci.Describe(sbom.MediaTypeSPDX, spdx)}); err != nil {
			return fmt.Errorf("attach the SBOM: %w", err)
		}
	}
	attested := slices.ContainsFunc(list, func(r oci.Descriptor) bool {
		return predicateOf(ctx, p.Registry, r) == sign.PredicateProvenance
	})
	if p.Attest == nil || attested {
		return nil
	}
	provenance, err := sbom.Provenance(l, suite, oci.Digest(spdx), p.Tool)
	if err != nil {
		return err
	}
	bundle, err := sign.Attest(p.Attest, d.Digest, sign.PredicateProvenance, provenance)
	if err != nil {
		return err
	}
	err = Attach(ctx, p.Registry, oci.Describe(oci.MediaTypeManifest, raw), Bundle{bundle, sign.PredicateProvenance, p.Now})
	return fault.In(err, "attach the provenance")
}

// Inspected is a layer and what is attached to it, as inspect -o json prints it.
type Inspected struct {
	Digest    string     `json:"digest"`
	Bytes     int64      `json:"bytes"`
	Layer     spec.Layer `json:"layer"`
	Referrers []Referrer `json:"referrers"`
	Released  *bool      `json:"released,omitempty"` // where keys were named

	Refused error `json:"-"` // why not Released
}

// Inspect returns what there is of a layer, and whether one of the keys released it where any are
// named.
func Inspect(ctx context.Context, l Layer, by []sign.Verifier) (one Inspected, err error) {
	one = Inspected{Digest: l.Digest, Bytes: l.Bytes(), Layer: l.Layer}
	if one.Referrers, err = l.Referrers(ctx); err != nil || len(by) == 0 {
		return one, err
	}
	one.Refused = l.Verify(ctx, by)
	released := one.Refused == nil
	one.Released = &released
	return one, nil
}

// Write prints the layer for people, its packages and profiles one by one where they are wanted.
func (i Inspected) Write(w io.Writer, packages, profiles bool) {
	l := i.Layer
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(key, format string, args ...any) { cli.Printf(t, "%s\t", key); cli.Printf(t, format+"\n", args...) }
	row("layer", "%s", i.Digest)
	row("fleet", "%s", l.Fleet)
	row("version", "%s, variant %s, %s, %s", l.Version, l.Variant, l.Arch, l.Created)
	row("size", "%.1f MB", float64(i.Bytes)/1e6)
	for _, image := range l.Images {
		row("image", "%s\t%s\t%s", image.Name, plain.Bytes(image.Size), image.Digest)
	}
	row("kernel", "%s\t%s\t%s", l.Kernel.Release, plain.Bytes(l.Kernel.Size), l.Kernel.Digest)
	row("initrd", "\t%s\t%s", plain.Bytes(l.Initrd.Size), l.Initrd.Digest)
	row("packages", "%d", len(l.Packages))
	if packages {
		for _, p := range l.Packages {
			row("", "%s\t%s\t%s", p.Name, p.Version, p.Arch)
		}
	}
	system := 0
	for _, acc := range l.Accounts {
		if accounts.IsSystem(acc) {
			system++
			continue
		}
		row("account", "%s\t%d\t%s", acc.Name, acc.UID, acc.State)
	}
	if system > 0 {
		row("accounts", "%d\tsystem users and groups whose numbers are kept", system)
	}
	modes := map[string]int{}
	for _, p := range l.AppArmor.Profiles {
		modes[p.Mode]++
	}
	for _, mode := range slices.Sorted(maps.Keys(modes)) {
		row("profiles", "%d\t%s", modes[mode], mode)
	}
	if profiles {
		for _, p := range l.AppArmor.Profiles {
			row("profile", "%s\t%s", p.Name, p.Mode)
		}
	}
	for _, r := range i.Referrers {
		row("attached", "%s\t%s", r.Type, r.Predicate)
	}
	if i.Released != nil {
		row("released", "%v", *i.Released)
	}
	_ = t.Flush() // the verb ends with what its output could not take
}

// CheckImage reads all of an image of the layer, from each place that has it, and holds it
// against its digest and, where the layer names one, the root of its hash tree, as a node
// does.
func (l Layer) CheckImage(ctx context.Context, i spec.Image) error {
	_, err := oci.Anywhere(ctx, l.registry.Source(), func(from oci.Source) (struct{}, error) { return struct{}{}, l.checkImage(ctx, from, i) })
	return fault.In(err, "image %s of layer %s", i.Name, l.Digest)
}

func (l Layer) checkImage(ctx context.Context, from oci.Source, i spec.Image) error {
	blob, err := from.Blob(ctx, oci.RepoLayer, oci.Descriptor{MediaType: i.MediaType, Digest: i.Digest, Size: i.Size}, 0)
	if err != nil {
		return err
	}
	defer blob.Close() // only read
	sum := sha256.New()
	read := io.TeeReader(io.LimitReader(blob, i.Size), sum)
	signed, named := l.Roots[i.Digest]
	var root verity.Hash
	if named {
		salt, err := verity.Parse(digest.Hex(i.Digest))
		if err != nil {
			return err
		}
		if root, err = verity.Root(read, i.Size, salt); err != nil {
			return err
		}
	} else if _, err := io.Copy(io.Discard, read); err != nil {
		return err
	}
	if got := digest.From(sum); got != i.Digest {
		return refusal.New(refusal.Digest, "it is %s, not %s", got, i.Digest)
	}
	return refusal.If(named && root.String() != signed, refusal.Layer, "its hash tree has the root %s, the layer's description names %.80q",
		root, signed)
}

// Save writes a blob of the layer repository to a file, or nothing when its
// content is not what the digest says.
func Save(ctx context.Context, r *registry.Registry, digest, name string) error {
	body, _, err := r.Blob(ctx, oci.RepoLayer, digest)
	if err != nil {
		return err
	}
	defer body.Close() // only read
	return durable.Write(name, 0o644, func(w io.Writer) error {
		_, err := io.Copy(w, io.LimitReader(body, oci.MaxBlob))
		return err
	})
}

// OpenBase opens an OCI image as one tar of its whole file system, for a
// layer whose base it is. It may be anybody's image: credentials are those that
// the user has for its host, see [keychain.Chain], and TLS is never left out. What
// comes is checked against the digest.
func OpenBase(arch string) func(context.Context, string) (io.ReadCloser, error) {
	return func(ctx context.Context, ref string) (io.ReadCloser, error) {
		var image v1.Image
		var err error
		if dir, digest, ok := strings.Cut(strings.TrimPrefix(ref, "oci:"), "@"); ok && strings.HasPrefix(ref, "oci:") {
			image, err = layoutImage(dir, digest)
		} else {
			image, err = remoteImage(ctx, ref, arch)
		}
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", ref, err)
		}
		return mutate.Extract(image), nil
	}
}

func layoutImage(dir, digest string) (v1.Image, error) {
	hash, err := v1.NewHash(digest)
	if err != nil {
		return nil, err
	}
	path, err := layout.FromPath(dir)
	if err != nil {
		return nil, err
	}
	return path.Image(hash)
}

func remoteImage(ctx context.Context, ref, arch string) (v1.Image, error) {
	digest, err := name.NewDigest(ref)
	if err != nil {
		return nil, err
	}
	logins := &keychain.Chain{Prefix: digest.Context().RepositoryStr()}
	transport, err := registry.Transport(digest.Context().RegistryStr(), registry.Options{Logins: logins.Find})
	if err != nil {
		return nil, err
	}
	return remote.Image(digest, remote.WithContext(ctx), remote.WithTransport(transport), // which logs in
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
}

// InspectAll inspects layers, and returns beside them why the first was not released that was not.
func InspectAll(ctx context.Context, layers []Layer, by []sign.Verifier) (out []Inspected, unsigned, err error) {
	for _, l := range layers {
		one, err := Inspect(ctx, l, by)
		if err != nil {
			return nil, nil, err
		}
		out, unsigned = append(out, one), cmp.Or(unsigned, one.Refused)
	}
	return out, unsigned, nil
}

// VerifyAll refuses layers that none of the keys released; without keys it asks nobody.
func VerifyAll(ctx context.Context, layers []Layer, by []sign.Verifier) error {
	for _, l := range layers {
		if len(by) == 0 {
			break
		}
		if err := l.Verify(ctx, by); err != nil {
			return err
		}
	}
	return nil
}

// OnlySBOM returns the SBOM of the only layer; a version with variants has several.
func OnlySBOM(ctx context.Context, layers []Layer, by []sign.Verifier) ([]byte, error) {
	if len(layers) != 1 {
		return nil, cli.Usage("REF@sha256:… names one; 'caisson inspect' lists them", "there are %s", plain.Count(len(layers), "layer"))
	}
	if err := VerifyAll(ctx, layers, by); err != nil {
		return nil, err
	}
	text, err := layers[0].SBOM(ctx)
	return append(bytes.TrimSpace(text), '\n'), err
}
