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
	r := (&Publisher{Reader: f.Reader()}).Run(f)
	if r.State.Index == nil {
		return r.Publisher.Unpublished()
	}
	p, policy, err := r.Publisher.withTrialKey(r.State.Policy)
	if err != nil {
		return err
	}
	p.current = r.State.Current
	todo := make([]Work, len(nodes))
	for i, n := range nodes {
		w := Work{Node: n, Generation: r.State.Index.Root.Generation + 1}
		row, there, err := r.State.Index.Row(ctx, n.Name)
		if err != nil {
			return err
		}
		if there {
			w.Was = &row
		}
		if err := w.setDocument(n.Doc); err != nil {
			return index.OfNode(n.Name, err)
		}
		todo[i] = w
	}
	if err := r.checkLayers(ctx, todo, named); err != nil {
		return err
	}
	return p.signNodes(ctx, policy, &r.State.Index.Root, todo)
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
func (p *Publisher) runDry(ctx context.Context, policy published.Policy, why published.Purpose, f func(context.Context, *Run) error) error {
	if p.Memory != nil {
		p.Memory.Fixed()
	}
	is, err := p.begin(ctx, policy, why)
	if err != nil {
		return err
	}
	is.Publisher.Registry = p.Registry.While(func() error { return errDry })
	if err := is.adoptMoves(ctx); err != nil {
		return err
	}
	is.batch = &registry.Batch{}
	return f(ctx, is)
}

// rehearse says in the result what would be written, after the nodes' own decision about it.
func (r *Run) rehearse(ctx context.Context, policy published.Policy) error {
	q, c := *r.Publisher, r.Plan
	if c.Judges == nil { // else it is about whose signatures they have
		var err error
		if q, policy, err = r.Publisher.withTrialKey(policy); err != nil {
			return err
		}
	}
	if err := q.signNodes(ctx, policy, &c.Index.Root, c.Todo, c.Judges...); err != nil {
		return err
	}
	for i := range c.Todo {
		r.Result.add(&c.Todo[i], c.Todo[i].Generation)
	}
	r.Result.sort()
	r.Result.DryRun = true
	return nil
}
