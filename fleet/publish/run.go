// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Options of [Publisher.Publish].
type Options struct {
	All        bool          // new generations also for what did not change
	Epoch      uint64        // go to this epoch; 0 keeps the present one
	EpochKey   crypto.Signer // permits it
	LayerNamed bool          // the layer was named by digest: it may be older than what nodes have
}

// Publish gives the nodes their overlays. Nodes that are published but not among
// them leave the index.
func (p *Publisher) Publish(ctx context.Context, policy Policy, nodes []Node, o Options) (result *Result, err error) {
	if err := p.checkSigners(policy); err != nil {
		return nil, err
	}
	policy.Site = true
	why := purpose{publish: true, raise: o.Epoch > 0}
	err = p.alone(ctx, policy, why, func(ctx context.Context, run *Publisher, batch *registry.Batch, v *view) error {
		result, err = run.publish(ctx, policy, v, batch, nodes, o)
		return err
	})
	return result, err
}

func (p *Publisher) publish(ctx context.Context, policy Policy, v *view, batch *registry.Batch, nodes []Node, o Options) (*Result, error) {
	old := v.index
	if old == nil {
		old = &spec.FleetIndex{Fleet: policy.Fleet}
		v.index = old
		p.Say("%s: a new fleet %s", p.Registry.Ref(), policy.Fleet)
	}
	x := &spec.FleetIndex{
		APIVersion: spec.APIVersion, Kind: spec.KindFleetIndex, Fleet: policy.Fleet,
		Epoch: old.Epoch, Generation: max(old.Generation, v.seen.Reserved) + 1, Grant: old.Grant,
		Threshold: policy.Threshold, Operator: pems(policy.Operator), Release: pems(policy.Release),
		Lifetime: int64(policy.Lifetime / time.Second), Nodes: map[string]spec.Published{},
	}
	if o.Epoch > 0 {
		if err := raiseEpoch(x, policy, o); err != nil {
			return nil, err
		}
		o.All = true // every node must move, or it would be below the floor
	}
	var todo []work
	result := newResult(x)
	listed := make(map[string]bool, len(nodes))
	for _, n := range nodes {
		doc, err := n.Doc()
		if err != nil {
			return nil, err
		}
		w := work{name: n.Name, match: n.Match, layer: n.Layer, knows: n.Knows, doc: doc, generation: x.Generation}
		listed[n.Name] = true
		was, known := old.Nodes[w.name]
		if known && !o.All && was.Overlay == oci.Digest(doc) {
			x.Nodes[w.name] = was
			if !p.old(was.Expires, policy.Lifetime) {
				result.Unchanged++
				continue
			}
			w.generation, w.resigned, w.pinned = was.Generation, true, was.Pinned
		}
		todo = append(todo, w)
	}
	for name := range old.Nodes {
		if !listed[name] {
			p.Say("node %s left the site: it keeps its last overlay", name)
		}
	}
	if !o.LayerNamed {
		if err := p.succeed(ctx, v, todo); err != nil {
			return nil, err
		}
	}
	return result, p.write(ctx, policy, v, batch, x, todo, v.rejected(), result)
}

// old reports whether a signature has used up two thirds of its life.
func (p *Publisher) old(expires int64, lifetime time.Duration) bool {
	return time.Unix(expires, 0).Sub(p.Now) < lifetime/3
}

func raiseEpoch(x *spec.FleetIndex, policy Policy, o Options) error {
	if o.Epoch <= x.Epoch {
		return hint("an epoch only rises", "the fleet is at epoch %d already", x.Epoch)
	}
	if o.EpochKey == nil {
		return hint("give --epoch-key", "a higher epoch needs the epoch key's permission")
	}
	if _, ok := sign.Find(policy.Epoch, o.EpochKey.Public()); !ok {
		return hint("nodes trust those that their bootstrap was made with", "the epoch key is not one of trust.keys.epoch of the site")
	}
	grant, err := sign.SignEpoch(o.EpochKey, sign.EpochPredicate{Fleet: x.Fleet, Epoch: o.Epoch})
	x.Epoch, x.Grant = o.Epoch, grant
	if x.Generation > farAhead*farAhead { // somebody ran ahead; nodes compare generations within an epoch
		x.Generation = 1
	}
	return err
}

func newResult(x *spec.FleetIndex) *Result {
	return &Result{Fleet: x.Fleet, Epoch: x.Epoch, Generation: x.Generation, Published: []NodeLine{}, Resigned: []NodeLine{}}
}
