// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/media/netboot"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// signers are keys that nothing else is signed with. They are in memory alone.
type signers struct{ release, operator *ecdsa.PrivateKey }

func newSigners() (s signers, err error) {
	if s.release, err = sign.Generate(); err != nil {
		return s, err
	}
	s.operator, err = sign.Generate()
	return s, err
}

// lifetime is how long signatures are valid: longer than anybody looks at a machine.
const lifetime = 7 * 24 * time.Hour

func (s signers) policy(fleet string) publish.Policy {
	return publish.Policy{Fleet: fleet, Operator: []sign.Verifier{sign.VerifierOf(s.operator)},
		Release:   []sign.Verifier{sign.VerifierOf(s.release)},
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
func (b *Box) push(ctx context.Context, built *release.Built) (l release.Layer, err error) {
	p := release.Pusher{Registry: b.registry, Release: b.keys.release, Tool: b.o.Tool, Now: b.o.Now}
	pushed, err := p.PushAll(ctx, b.site.Name(), built.Version(), built)
	if err != nil {
		return l, err
	}
	layers, err := release.Open(ctx, b.registry, pushed.Layers[0].Digest)
	if err != nil {
		return l, err
	}
	return layers[0], nil
}

// publish signs the node's overlay, as a publish of the whole site would.
func (b *Box) publish(ctx context.Context, n publish.Node, first func(context.Context, *registry.Registry) error) error {
	p := b.publisher()
	p.NewFleet = b.generation == 0
	o := publish.Options{LayerNamed: true} // what is kept may be older than what the node has
	if first != nil {
		o.First = func(ctx context.Context) error { return first(ctx, b.registry) }
	}
	result, err := p.Publish(ctx, b.keys.policy(b.site.Name()), []publish.Node{n}, o)
	if err != nil {
		return err
	}
	b.note(result)
	return nil
}

// publisher signs with the keys of the sandbox.
func (b *Box) publisher() *publish.Publisher {
	policy := b.keys.policy(b.site.Name())
	return &publish.Publisher{Registry: b.registry, Signers: []crypto.Signer{b.keys.operator}, Trust: &policy,
		Now: b.o.Now, Say: func(string, ...any) {}}
}

// writeLoader writes what metal would boot from.
func (b *Box) writeLoader(ctx context.Context) error {
	anchor, err := netboot.Anchor(b.site, netboot.Registry{Ref: fmt.Sprintf("%s/%s", b.plug.Registry, b.site.Name()), PlainHTTP: true},
		[]sign.Verifier{sign.VerifierOf(b.keys.operator)})
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
