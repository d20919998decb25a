// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto"
	"errors"
	"slices"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Rehearse says what a publish of nodes would be refused for, and changes nothing: layers
// that are older than what nodes have, unless an operator named them, and what the nodes
// themselves would refuse. It signs with a key that is made for that and kept nowhere, so
// that nobody is asked for the fleet's.
func (f *Fleet) Rehearse(ctx context.Context, nodes []Node, named bool) error {
	if f.v.index == nil {
		return f.p.unpublished()
	}
	p, policy, err := f.p.withTrialKey(f.v.policy)
	if err != nil {
		return err
	}
	p.current = f.v.current
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
		if err := w.setDocument(n.Doc); err != nil {
			return ofNode(n.Name, err)
		}
		todo[i] = w
	}
	if err := (&run{Fleet: &Fleet{&p, f.v}}).checkLayers(ctx, todo, named); err != nil {
		return err
	}
	return p.signNodes(ctx, policy, &f.v.index.Root, todo)
}

// withTrialKey returns the publisher and the policy of a fleet that trusts a key which is
// made for that and kept nowhere.
func (p *Publisher) withTrialKey(policy Policy) (Publisher, Policy, error) {
	q := *p
	key, err := sign.Generate()
	if err != nil {
		return q, policy, err
	}
	public, err := sign.NewVerifier(key.Public())
	q.Signers, policy.Operator, policy.Threshold = []crypto.Signer{key}, []sign.Verifier{public}, 1
	return q, policy, err
}

// errDry is returned for a write of a run that writes nothing.
var errDry = errors.New("a dry run writes nothing")

// runDry runs f on what is published now. No other publisher is kept out, and no write
// leaves this program, whatever f does.
func (p *Publisher) runDry(ctx context.Context, policy Policy, why purpose, f func(context.Context, *run) error) error {
	if p.Memory != nil {
		p.Memory.Fixed()
	}
	is, err := p.begin(ctx, policy, why)
	if err != nil {
		return err
	}
	is.p.Registry = p.Registry.While(func() error { return errDry })
	if err := is.adoptMoves(ctx); err != nil {
		return err
	}
	return f(ctx, &run{Fleet: is, batch: &registry.Batch{}})
}

// rehearse says in the result what would be written, after the nodes' own decision about it.
func (r *run) rehearse(ctx context.Context, policy Policy) error {
	q, c := *r.p, r.plan
	if c.judges == nil { // else it is about whose signatures they have
		var err error
		if q, policy, err = r.p.withTrialKey(policy); err != nil {
			return err
		}
	}
	if err := q.signNodes(ctx, policy, &c.index.Root, c.todo, c.judges...); err != nil {
		return err
	}
	for i := range c.todo {
		r.result.add(&c.todo[i], c.todo[i].generation)
	}
	r.result.sort()
	r.result.DryRun = true
	return nil
}

// Allowed is an error where one of these digests is on the reject list.
func (f *Fleet) Allowed(digests ...string) error {
	for _, digest := range digests {
		if digest != "" && slices.Contains(f.v.rejected(), digest) {
			return hintReject(refusal.New(refusal.Rejected, "%s is on the reject list", digest))
		}
	}
	return nil
}

// hintReject says how something comes off the reject list, where an error is about that. Who
// meets it in need may have put a forgery there: only a mistake comes off.
func hintReject(err error) error {
	if refusal.Of(err) != refusal.Rejected {
		return err
	}
	return cli.WithHint(err, "publish or go back to something else; if it was rejected by mistake, 'caisson refresh "+
		"--allow DIGEST' removes it from the list")
}
