// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto"
	"errors"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
)

// Rehearse says what a publish of nodes would be refused for, and changes nothing: layers
// that are older than what nodes have, unless an operator named them, and what the nodes
// themselves would refuse. It signs with a key that is made for that and kept nowhere, so
// that nobody is asked for the fleet's.
func Rehearse(ctx context.Context, f *published.Fleet, nodes []Node, named bool) error {
	r := &run{base: (&Publisher{Reader: f.Reader()}).baseOf(f)}
	if r.v.Index == nil {
		return r.p.Unpublished()
	}
	p, policy, err := r.p.withTrialKey(r.v.Policy)
	if err != nil {
		return err
	}
	p.current = r.v.Current
	todo := make([]work, len(nodes))
	for i, n := range nodes {
		w := work{name: n.Name, match: n.Match, layer: n.Layer, knows: n.Knows, generation: r.v.Index.Root.Generation + 1}
		row, there, err := r.v.Index.Row(ctx, n.Name)
		if err != nil {
			return err
		}
		if there {
			w.was = &row
		}
		if err := w.setDocument(n.Doc); err != nil {
			return index.OfNode(n.Name, err)
		}
		todo[i] = w
	}
	if err := r.checkLayers(ctx, todo, named); err != nil {
		return err
	}
	return p.signNodes(ctx, policy, &r.v.Index.Root, todo)
}

// withTrialKey returns the publisher and the policy of a fleet that trusts a key which is
// made for that and kept nowhere.
func (p *Publisher) withTrialKey(policy published.Policy) (Publisher, published.Policy, error) {
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
func (p *Publisher) runDry(ctx context.Context, policy published.Policy, why published.Purpose, f func(context.Context, *run) error) error {
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
	return f(ctx, &run{base: is, batch: &registry.Batch{}})
}

// rehearse says in the result what would be written, after the nodes' own decision about it.
func (r *run) rehearse(ctx context.Context, policy published.Policy) error {
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
