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
	return publish.Policy{Fleet: fleet, Operator: []sign.Verifier{sign.VerifierOf(s.operator)}, Release: []sign.Verifier{sign.VerifierOf(s.release)},
		Threshold: 1, Lifetime: lifetime}
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
func (b *Box) publish(ctx context.Context) error {
	node := b.node
	p := publish.Publisher{Registry: b.registry, Signers: []crypto.Signer{b.keys.operator}, Now: b.o.Now, NewFleet: true, Say: func(string, ...any) {}}
	var o publish.Options
	if b.o.First != nil {
		o.First = func(ctx context.Context) error { return b.o.First(ctx, b.registry) }
	}
	result, err := p.Publish(ctx, b.keys.policy(b.site.Name()), []publish.Node{{Name: node.Name, Match: node.Match, Layer: b.layer.Digest, Knows: b.layer.Features,
		Doc: func() ([]byte, error) { return b.site.Compile(node.Name, b.layer.Digest, b.layer.Variant) }}}, o)
	if err != nil {
		return err
	}
	b.generation, b.overlay = result.Generation, result.Published[0].Overlay
	return nil
}

// writeLoader writes what metal would boot from.
func (b *Box) writeLoader(ctx context.Context) error {
	anchor, err := netboot.Anchor(b.site, netboot.Registry{Ref: fmt.Sprintf("%s/%s", b.plug.registry, b.site.Name()), PlainHTTP: true},
		[]sign.Verifier{sign.VerifierOf(b.keys.operator)})
	if err != nil {
		return err
	}
	anchor.Hints = "" // the fleet's service is told nothing
	anchor.Network = b.plug.rows
	l := netboot.Loader{Layer: b.layer, Bootstrap: anchor}
	b.line = l.Line()
	if b.road() != byKernel {
		return b.writeMedium(ctx, anchor)
	}
	if err := netboot.Write(ctx, b.registry, b.dir.file("boot"), l); err != nil {
		return err
	}
	return machine.JoinInitrd(b.dir.file("loader.img"), b.dir.file("boot/initrd"), b.dir.file("boot/site.cpio"))
}

// openRegistry makes the registry of the sandbox.
func (b *Box) openRegistry() (err error) {
	b.registry, err = registry.Open("oci:"+b.dir.file("registry"), registry.Options{})
	return err
}
