// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/hold"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/media/netboot"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site"
)

// offer is a registry for the node, and what was published there last. Nothing else is signed
// with its keys, which are in memory alone.
type offer struct {
	registry          *registry.Registry
	release, operator *ecdsa.PrivateKey
	fleet, tool       string
	now               time.Time // of the signatures

	layer      release.Layer
	want       *spec.Overlay
	overlay    string // digest
	runs       string // digest of the layer that was published with it
	generation uint64
}

// open makes the registry, and the keys.
func (f *offer) open(ref string) (err error) {
	if f.release, err = sign.Generate(); err != nil {
		return err
	}
	if f.operator, err = sign.Generate(); err != nil {
		return err
	}
	f.registry, err = registry.Open(ref, registry.Options{})
	return err
}

// Layer is the digest of the layer that was published last for the node, also by a hold.
func (f *offer) Layer() string { return f.runs }

// Published returns the overlay that was published last, its digest and its generation.
func (f *offer) Published() (*spec.Overlay, string, uint64) { return f.want, f.overlay, f.generation }

// ReadLayer reads a layer of the sandbox's registry.
func (f *offer) ReadLayer(ctx context.Context, digest string) (release.Layer, error) {
	return release.Read(ctx, f.registry, digest)
}

// lifetime is how long signatures are valid: longer than anybody looks at a machine.
const lifetime = 7 * 24 * time.Hour

func (f *offer) policy() published.Policy {
	return published.Policy{Fleet: f.fleet, Operator: []sign.Verifier{sign.VerifierOf(f.operator)},
		Release:   []sign.Verifier{sign.VerifierOf(f.release)},
		Threshold: 1, Lifetime: lifetime}
}

// build builds the node's layer as the site has it, puts it into the registry and returns
// what is to be published.
func (b *Box) build(ctx context.Context) (n publish.Node, err error) {
	how := b.o.Build
	how.Node = b.node.Name
	built, err := release.Bake(ctx, b.site, how)
	if err != nil {
		return n, err
	}
	if b.layer, err = b.push(ctx, built); err != nil {
		return n, err
	}
	if b.want, err = b.site.Overlay(b.node.Name, b.layer.Digest); err != nil {
		return n, err
	}
	layer := b.layer
	b.want.Variant = layer.Variant
	return publish.Node{Name: b.node.Name, Match: b.want.Match, Layer: layer.Digest, Knows: layer.Features,
		Doc: func() ([]byte, error) { return b.site.Compile(b.node.Name, layer.Digest, layer.Variant) }}, layer.Suits(b.want)
}

// push puts the layer that was built into the registry and returns it.
func (f *offer) push(ctx context.Context, built *release.Built) (l release.Layer, err error) {
	p := release.Pusher{Registry: f.registry, Release: f.release, Tool: f.tool, Now: f.now}
	pushed, err := p.PushAll(ctx, f.fleet, built.Version(), built)
	if err != nil {
		return l, err
	}
	return f.ReadLayer(ctx, pushed.Layers[0].Digest)
}

// publish signs the node's overlay, as a publish of the whole site would.
func (f *offer) publish(ctx context.Context, n publish.Node, first func(context.Context, *registry.Registry) error) error {
	p := f.publisher()
	p.NewFleet = f.generation == 0
	o := publish.Options{LayerNamed: true} // what is kept may be older than what the node has
	if first != nil {
		o.First = func(ctx context.Context) error { return first(ctx, f.registry) }
	}
	result, err := p.Publish(ctx, f.policy(), []publish.Node{n}, o)
	return f.note(result, err)
}

// publisher signs with the keys of the sandbox.
func (f *offer) publisher() *publish.Publisher {
	policy := f.policy()
	return &publish.Publisher{Reader: published.Reader{Registry: f.registry, Signers: []crypto.Signer{f.operator},
		Trust: &policy, Now: f.now, Say: func(string, ...any) {}}}
}

// writeLoader writes what metal would boot from.
func (b *Box) writeLoader(ctx context.Context) error {
	anchor, err := netboot.Anchor(b.site, netboot.Registry{Ref: fmt.Sprintf("%s/%s", b.plug.Registry, b.fleet), PlainHTTP: true},
		[]sign.Verifier{sign.VerifierOf(b.operator)})
	if err != nil {
		return err
	}
	anchor.Hints = "" // the fleet's service is told nothing
	anchor.Network = b.plug.Rows
	if b.o.Kept != nil { // the site may say something else by now
		anchor.KernelArgs, anchor.BootFromDisk, anchor.Nodes = b.o.Kept.Overlay.KernelArgs, false, nil
		if row, ok := spec.BootNodeOf(b.o.Kept.Overlay.Match, b.o.Kept.Overlay.Network); ok {
			anchor.Nodes = []spec.BootNode{row}
		}
	}
	anchor.NewStateDisk = b.newStateDisk()
	l := netboot.Loader{Layer: b.layer, Bootstrap: anchor}
	b.line = l.Line()
	if b.road() != byKernel {
		return b.writeMedium(ctx, anchor)
	}
	if err := netboot.Write(ctx, b.registry, b.dir.File("boot"), l); err != nil {
		return err
	}
	return machine.JoinInitrd(b.dir.File("loader.img"), b.dir.File("boot/initrd"), b.dir.File("boot/site.cpio"))
}

// Kept holds the content of a registry for a node: an overlay as it was published, or as a site has
// it, and its layer. The caller has verified both.
type Kept struct {
	Overlay *spec.Overlay
	Layer   release.Layer
	From    *registry.Registry // has the layer, and the images of services that the overlay names
	Stacked *Stacked           // nil: From has the layer as it is
	Boot    []spec.BootNetwork // bootNetwork of the site that it was published from; nil: that of the site
}

// Stacked is a layer that no registry has, of images of layers that are in registries.
type Stacked struct {
	Of               []release.Layer
	Config, Manifest []byte
}

// ReadKept reads what a fleet in a registry has for a node, and verifies it. The row of any
// generation says what that is.
func ReadKept(ctx context.Context, f *published.Fleet, from *registry.Registry, node string, row spec.Content) (*Kept, error) {
	o, err := f.Content(ctx, node, row)
	if err != nil {
		return nil, err
	}
	if o.Layer == "" {
		return nil, site.ErrNoLayer
	}
	l, err := f.Layer(ctx, o.Layer)
	return &Kept{Overlay: o, Layer: l, From: from}, err
}

// Offer publishes something else for the node: what is kept, or what the site says where k is
// nil. A machine that runs finds it as metal would.
func (b *Box) Offer(ctx context.Context, k *Kept) error {
	var n publish.Node
	name, bring, first := "build", b.build, b.o.First
	if k != nil {
		name, bring, first = "fetch", func(ctx context.Context) (publish.Node, error) { return b.fetch(ctx, k, b.o.Key != "") }, nil
	}
	err := b.step(name, func() (err error) {
		n, err = bring(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return b.step("publish", func() error { return b.publish(ctx, n, first) })
}

// fetch copies a layer and the images of services, signs the layer with the key of the
// sandbox, and returns what is to be published. Secrets that the machine cannot open are
// left out: they are sealed to another one.
func (f *offer) fetch(ctx context.Context, k *Kept, opens bool) (n publish.Node, err error) {
	copies := registry.Transfer{From: k.From, To: f.registry}
	if err := f.fetchLayer(ctx, &copies, k); err != nil {
		return n, fmt.Errorf("fetch layer %s: %w", k.Layer.Digest, err)
	}
	for _, s := range k.Overlay.Services {
		image, err := k.From.Source().Manifest(ctx, oci.RepoService, content.Tag(s.Image.Digest), "")
		if err == nil {
			_, err = copies.Copy(ctx, oci.RepoService, image.Digest, content.Tag(s.Image.Digest))
		}
		if err != nil {
			return n, fmt.Errorf("fetch the image of service %s: %w", s.Name, err)
		}
	}
	manifest, err := f.registry.Source().Manifest(ctx, oci.RepoLayer, k.Layer.Digest, "")
	if err != nil {
		return n, err
	}
	if err := release.Sign(ctx, f.registry, manifest.Data, f.release, f.now); err != nil {
		return n, err
	}
	if f.layer, err = f.ReadLayer(ctx, k.Layer.Digest); err != nil {
		return n, err
	}
	o := *k.Overlay
	if !opens {
		o.Secrets = nil
	}
	f.want = &o
	return publish.Node{Name: o.Node, Match: o.Match, Layer: f.layer.Digest, Knows: f.layer.Features,
		Doc: func() ([]byte, error) { return spec.Encode(o) }}, f.layer.Suits(&o)
}

// fetchLayer brings the layer into the registry of the sandbox.
func (f *offer) fetchLayer(ctx context.Context, copies *registry.Transfer, k *Kept) error {
	if k.Stacked == nil {
		_, err := copies.Copy(ctx, oci.RepoLayer, k.Layer.Digest, release.KeepTag(k.Layer.Digest))
		return err
	}
	for _, l := range k.Stacked.Of {
		images := registry.Transfer{From: l.From(), To: f.registry}
		if _, err := images.Copy(ctx, oci.RepoLayer, l.Digest, release.KeepTag(l.Digest)); err != nil {
			return err
		}
	}
	if err := f.registry.PutData(ctx, oci.RepoLayer, oci.Describe(oci.TypeLayerConfig, k.Stacked.Config)); err != nil {
		return err
	}
	_, err := f.registry.PutManifest(ctx, oci.RepoLayer, oci.MediaTypeManifest, k.Stacked.Manifest, release.KeepTag(k.Layer.Digest))
	return err
}

// GoBack has the node go back to what it had before, by a hold as an operator would set it.
func (b *Box) GoBack(ctx context.Context) error {
	return b.step("go back", func() error {
		result, err := hold.Rollback(ctx, b.publisher(), hold.Order{By: publish.By{Author: "caisson",
			Reason: "the way back is tried"}, Nodes: []string{b.node.Name}, OldSecrets: true}, "")
		return b.note(result, err)
	})
}

// note keeps what the last publish gave the node.
func (f *offer) note(r *publish.Result, err error) error {
	if err != nil {
		return err
	}
	f.generation = r.Generation
	for _, line := range r.Published {
		f.overlay, f.runs = line.Overlay, line.Layer
	}
	return nil
}
