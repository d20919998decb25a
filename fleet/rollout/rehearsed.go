// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/caisson-os/caisson/fleet/evidence"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/spec"
)

// readers is how many overlays are read at a time.
const readers = 16

// evidenced asks whether the changes of a plan were rehearsed, where its rule wants that.
type evidenced struct {
	fleet *publish.Fleet
	rows  index.Rows
	plan  *spec.RolloutPlan
	shelf *evidence.Shelf
}

func (e *evidenced) open(ctx context.Context, f *publish.Fleet, r *registry.Registry, plan *spec.RolloutPlan) (err error) {
	policy := f.Policy()
	e.fleet, e.plan = f, plan
	e.shelf = &evidence.Shelf{Registry: r, Fleet: policy.Fleet, Keys: policy.Attestation, Now: f.Now()}
	e.rows, err = f.Nodes(ctx)
	return err
}

// rehearsed refuses nodes whose change was not rehearsed, where the plan wants that.
func (d *Driver) rehearsed(ctx context.Context, f *publish.Fleet, plan *spec.RolloutPlan, nodes []publish.Node) error {
	if plan.Rule.Rehearsed == "" || len(nodes) == 0 {
		return nil
	}
	var e evidenced
	if err := e.open(ctx, f, d.Publisher.Registry, plan); err != nil {
		return err
	}
	err := e.check(ctx, nodes)
	if errors.Is(err, evidence.ErrNotRehearsed) {
		return &stop{err}
	}
	return err
}

// Unrehearsed returns why waves of a plan would not begin if they were to begin now, by wave: a
// change of theirs was not rehearsed, and the plan wants that. nodes are those that the plan was
// made of.
func Unrehearsed(ctx context.Context, p *publish.Publisher, policy publish.Policy, plan *spec.RolloutPlan,
	nodes []publish.Node) (map[string]string, error) {
	if plan.Rule.Rehearsed == "" {
		return nil, nil
	}
	f, err := p.Read(ctx, policy)
	if err != nil {
		return nil, err
	}
	var e evidenced
	if err := e.open(ctx, f, p.Registry, plan); err != nil {
		return nil, err
	}
	why := map[string]string{}
	for _, w := range plan.Waves {
		mine := slices.DeleteFunc(slices.Clone(nodes), func(n publish.Node) bool { return w.Nodes[n.Name] == "" })
		var hinted interface{ Hint() string }
		switch err := e.check(ctx, mine); {
		case errors.Is(err, evidence.ErrNotRehearsed) && errors.As(err, &hinted):
			why[w.Name] = err.Error() + ": " + hinted.Hint()
		case err != nil:
			return nil, err
		}
	}
	return why, nil
}

// Lack notes what [Unrehearsed] returns.
func (s *State) Lack(why map[string]string, err error) error {
	for i := range s.Waves {
		s.Waves[i].Unrehearsed = why[s.Waves[i].Name]
	}
	return err
}

// check returns an error where the change of a node was not rehearsed. Nodes that go the same way
// are asked about once, and a node that nothing is published for is not asked about.
func (e *evidenced) check(ctx context.Context, nodes []publish.Node) error {
	ways := make([]evidence.Asked, len(nodes))
	group, reading := errgroup.WithContext(ctx)
	group.SetLimit(readers)
	for i, n := range nodes {
		if row, there := e.rows[n.Name]; there && row.Overlay != GivenBy(e.plan, n.Name) {
			group.Go(func() (err error) {
				ways[i], err = e.way(reading, n, row)
				return err
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	along := map[evidence.Asked][]string{}
	for i, way := range ways {
		if way.Rule != "" {
			along[way] = append(along[way], nodes[i].Name)
		}
	}
	for _, way := range slices.SortedFunc(maps.Keys(along), func(a, b evidence.Asked) int { return plain.Natural(along[a][0], along[b][0]) }) {
		err := e.shelf.Check(ctx, way)
		if errors.Is(err, evidence.ErrNotRehearsed) {
			return cli.WithHint(fmt.Errorf("the change of %s is %w", first(along[way]), err), "'caisson rehearse FILE --node "+
				along[way][0]+" --push' states one")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// way returns what a node is to go through.
func (e *evidenced) way(ctx context.Context, n publish.Node, row spec.Published) (a evidence.Asked, err error) {
	a = evidence.Asked{Rule: e.plan.Rule.Rehearsed, Planned: time.Unix(e.plan.At, 0).UTC(),
		From: evidence.End{Layer: row.Layer}, To: evidence.End{Layer: n.Layer}}
	if a.Rule == spec.RehearsedLayer {
		return a, nil
	}
	was, err := e.fleet.Content(ctx, n.Name, spec.Content{Overlay: row.Overlay, Size: row.Size, Layer: row.Layer, Generation: row.Generation})
	if err != nil {
		return a, err
	}
	doc, err := n.Doc()
	if err != nil {
		return a, err
	}
	var is spec.Overlay
	if err := spec.Decode(doc, &is); err != nil {
		return a, fmt.Errorf("overlay %s of node %s: %w", oci.Digest(doc), n.Name, err)
	}
	if a.From, err = evidence.EndOf(was); err == nil {
		a.To, err = evidence.EndOf(&is)
	}
	return a, err
}
