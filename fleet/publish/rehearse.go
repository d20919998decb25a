// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto"
	"slices"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/trust/refusal"
)

// Rehearse says what a publish of nodes would be refused for, and changes nothing: layers
// that are older than what nodes have, unless an operator named them, and what the nodes
// themselves would refuse. It signs with a key that is made for that and kept nowhere, so
// that nobody is asked for the fleet's.
func (f *Fleet) Rehearse(ctx context.Context, nodes []Node, named bool) error {
	if f.v.index == nil {
		return f.p.unpublished()
	}
	key, err := sign.Generate()
	if err != nil {
		return err
	}
	public, err := sign.NewVerifier(key.Public())
	if err != nil {
		return err
	}
	p, policy := *f.p, f.v.policy
	p.Signers, p.current = []crypto.Signer{key}, f.v.current
	policy.Operator, policy.Threshold = []sign.Verifier{public}, 1
	todo := make([]work, len(nodes))
	for i, n := range nodes {
		w := work{name: n.Name, match: n.Match, layer: n.Layer, knows: n.Knows, generation: f.v.index.Root.Generation + 1}
		row, there, err := f.v.index.Row(ctx, n.Name)
		if err != nil {
			return err
		}
		if there {
			w.was = &row
		}
		if err := w.give(n.Doc); err != nil {
			return ofNode(n.Name, err)
		}
		todo[i] = w
	}
	if !named {
		if err := p.succeed(ctx, todo); err != nil {
			return err
		}
	}
	if err := p.sayFast(ctx, todo); err != nil {
		return err
	}
	return p.signNodes(ctx, policy, &f.v.index.Root, todo)
}

// Allowed is an error where one of these digests is on the reject list.
func (f *Fleet) Allowed(digests ...string) error { return f.v.allowed(digests...) }

func (v *view) allowed(digests ...string) error {
	for _, digest := range digests {
		if digest != "" && slices.Contains(v.rejected(), digest) {
			return takesOff(refusal.New(refusal.Rejected, "%s is on the reject list", digest))
		}
	}
	return nil
}

// takesOff says how something comes off the reject list, where an error is about that.
func takesOff(err error) error {
	if refusal.Of(err) != refusal.Rejected {
		return err
	}
	return cli.WithHint(err, "'caisson refresh --allow DIGEST' takes it off")
}
