// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// nodeView holds the overlay that a node finds under its names, or why it would not take that.
type nodeView struct {
	accepted *trust.Accepted
	err      error // that is a verdict
}

// viewAsNodes looks as each node does, several at a time.
func (r *verifying) viewAsNodes(ctx context.Context, names []string) (map[string]nodeView, error) {
	return findEach(ctx, slices.Values(names), func(ctx context.Context, name string) (nodeView, error) {
		a, err := r.viewAsNode(ctx, name)
		if err != nil && verdict(err) == "" {
			return nodeView{}, err
		}
		return nodeView{a, err}, nil
	})
}

// viewAsNode looks under a node's names, where the node does.
func (r *verifying) viewAsNode(ctx context.Context, name string) (*trust.Accepted, error) {
	c, err := trust.Overlay(ctx, r.p.Registry.Source(), []string{name}, "")
	if err != nil {
		return nil, err
	}
	// The machine is given every identifier that the overlay asks for: which
	// machine it is cannot be seen from here.
	var o spec.Overlay
	_, _ = spec.DecodeKnown(c.Document, &o) // Accept says what is wrong with it, and what is left out
	v := r.v
	a, err := r.p.agentRules().Accept(c, spec.Bootstrap{Fleet: v.index.Root.Fleet, Keys: pems(v.policy.Operator),
		Threshold: v.policy.Threshold},
		trust.Identity{Node: name, MACs: o.Match.MACs, UUIDs: o.Match.UUIDs},
		spec.Floor{Epoch: v.index.Root.Epoch}, trust.Clock{RTC: r.p.Now}, trust.Known{Fleet: v.current})
	if err != nil {
		return nil, err
	}
	row, ok := r.rows[name]
	if !ok {
		return a, nil // it left the index, or was never in it
	}
	if err := checkTarget(&v.index.Root, row, c.Manifest, a.Floor.Generation); err != nil {
		return nil, err
	}
	for _, tag := range trust.AliasTags(o.Match.MACs, o.Match.UUIDs) {
		if err := r.checkAlias(ctx, tag, c.Manifest); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// checkTarget says what a node's tag is that does not lead to what its row says.
func checkTarget(x *spec.FleetIndex, row spec.Published, manifest string, generation uint64) error {
	switch {
	case manifest == row.Manifest:
		return nil
	case generation < row.Generation:
		return refusal.New(refusal.Rollback, "generation %d, the index says %d", generation, row.Generation)
	case x.Reserved && generation > row.Generation && generation <= x.Generation:
		return errUnfinished
	case generation == row.Generation:
		return refusal.New(refusal.Contradiction, "another signature of generation %d than the index says: %s", generation, moved)
	}
	return refusal.New(refusal.Contradiction, "generation %d, the index says %d and gave out no later one than %d: %s",
		generation, row.Generation, x.Generation, moved)
}

const moved = "the tag was moved, or fleet:index was replaced by an older one"

// errUnfinished is the verdict on what a publish has moved that did not end.
var errUnfinished = errors.New("of a generation that is given out and not published yet")

// checkAlias wants the tag of a machine to lead to what a node has that is bound to it:
// several may be, as where a node is held and another has its machine by now.
func (r *verifying) checkAlias(ctx context.Context, tag, manifest string) error {
	resp, err := r.p.Registry.Source().Manifest(ctx, oci.RepoNode, tag, "")
	if err != nil {
		return fmt.Errorf("node:%s: %w", tag, err)
	}
	if resp.Digest == manifest {
		return nil
	}
	for _, row := range r.rows {
		if row.Manifest == resp.Digest && slices.Contains(trust.AliasTags(row.Match.MACs, row.Match.UUIDs), tag) {
			return nil
		}
	}
	return refusal.New(refusal.Contradiction, "node:%s leads to %s, which is not the overlay of a node bound to it: %s",
		tag, resp.Digest, moved)
}
