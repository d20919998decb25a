// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"context"
	"fmt"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/verity"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Described is a layer as its description says.
type Described struct {
	spec.Layer
	Manifest *oci.Manifest
	LeftOut  []string // paths of keys of a later release, see spec.DecodeKnown
}

// Layer reads the description of the layer whose manifest has the digest. Since
// the digest was signed, so is all that it leads to; what is checked besides is
// that the parts belong together, before gigabytes are fetched.
func Layer(ctx context.Context, src oci.Source, digest string) (*Described, error) {
	return describe(ctx, All().layer, src, digest)
}

// describe asks each place of src in turn and judges what it gives.
func describe(ctx context.Context, checks check.List[*description], src oci.Source, digest string) (*Described, error) {
	l, err := oci.Anywhere(ctx, src, func(place oci.Source) (*description, error) { return describeFrom(ctx, checks, place, digest) })
	if err != nil {
		return nil, fmt.Errorf("layer %s: %w", digest, err)
	}
	return &l.Described, nil
}

func describeFrom(ctx context.Context, checks check.List[*description], src oci.Source, digest string) (*description, error) {
	resp, err := src.Manifest(ctx, oci.RepoLayer, digest, "")
	if err != nil {
		return nil, err
	}
	l := &description{}
	if l.Manifest, err = oci.ParseManifest(resp.Data); err != nil {
		return nil, err
	}
	if l.config, err = oci.ReadBlob(ctx, src, oci.RepoLayer, l.Manifest.Config, oci.MaxConfig); err != nil {
		return nil, err
	}
	return l, checks.Run(l)
}

// description is a layer on its way through the checks.
type description struct {
	Described
	config []byte
}

var layerChecks = check.List[*description]{
	{Name: "layer type", OK: isLayer},
	{Name: "description", OK: descriptionParses},
	{Name: "content", OK: contentIsHeld},
	{Name: "hash trees", OK: rootsAreOfImages},
}

func isLayer(l *description) error {
	m := l.Manifest
	return refusal.If(m.ArtifactType != oci.TypeLayer || m.Config.MediaType != oci.TypeLayerConfig, refusal.MediaType,
		"the artifact is %.80q with config %.80q", m.ArtifactType, m.Config.MediaType)
}

func descriptionParses(l *description) (err error) {
	if l.LeftOut, err = spec.DecodeKnown(l.config, &l.Layer); err != nil {
		return refusal.New(refusal.Layer, "%w", err)
	}
	return refusal.If(l.Layer.APIVersion != spec.APIVersion || l.Layer.Kind != spec.KindLayer, refusal.Layer,
		"the layer's description is %.40q %.40q", l.Layer.APIVersion, l.Layer.Kind)
}

// contentIsHeld refuses a description that names content which the manifest does
// not hold: it would be fetched under sizes that nobody capped.
func contentIsHeld(l *description) error {
	held := map[spec.Blob]bool{}
	for _, d := range l.Manifest.Layers {
		held[spec.Blob{Digest: d.Digest, Size: d.Size}] = true
	}
	needed := []spec.Blob{l.Layer.Kernel.Blob, l.Layer.Initrd}
	if u := l.Layer.UEFI; u != nil {
		needed = append(needed, u.Stub, u.Manager)
	}
	for _, i := range l.Layer.Images {
		needed = append(needed, i.Blob)
		if i.Chunks != nil {
			needed = append(needed, *i.Chunks)
		}
	}
	for _, b := range needed {
		if b != (spec.Blob{}) && !held[b] {
			return refusal.New(refusal.Layer, "the manifest does not hold %s with %d bytes", b.Digest, b.Size)
		}
	}
	return nil
}

// rootsAreOfImages refuses roots that no tree of the layer's images can have: nodes
// would find that out, one by one.
func rootsAreOfImages(l *description) error {
	blocks := map[string]bool{}
	for _, i := range l.Layer.Images {
		blocks[i.Digest] = i.Size > 0 && i.Size%verity.Block == 0
	}
	for digest, root := range l.Layer.Roots {
		if !blocks[digest] {
			return refusal.New(refusal.Layer, "hash tree %.80q belongs to no image of the layer, or to one without whole blocks", digest)
		}
		if _, err := verity.Parse(root); err != nil {
			return refusal.New(refusal.Layer, "the root of the hash tree of %s: %w", digest, err)
		}
	}
	return nil
}

// pairing is a layer and the machine that would run it.
type pairing struct {
	layer spec.Layer
	fleet string
	arch  string
}

var pairingChecks = check.List[pairing]{
	{Name: "architecture", OK: archIsOurs},
	{Name: "layer's fleet", OK: layerIsOurs},
}

// ForMachine refuses a layer of another fleet or architecture (as Go names it).
func ForMachine(layer spec.Layer, b spec.Bootstrap, arch string) error {
	return pairingChecks.Run(pairing{layer, b.Fleet, arch})
}

func archIsOurs(p pairing) error {
	return refusal.If(p.layer.Arch != p.arch, refusal.WrongArch, "the layer is for %.40q, this machine is %q", p.layer.Arch, p.arch)
}

func layerIsOurs(p pairing) error {
	return refusal.If(p.layer.Fleet != p.fleet, refusal.WrongFleet, "the layer is for fleet %.80q, want %q", p.layer.Fleet, p.fleet)
}
