// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// adoptMoves finds the nodes whose tag a publish that was cut has moved. Where that was a
// rollout's, their rows say from now on what it gave them: its next step goes on with
// the wave or with the way back, and moves none of them once more. It changes the
// state of the run, and so what is written next, be that cut as well.
func (r *Run) adoptMoves(ctx context.Context) error {
	v := r.State
	if v.Index == nil || !v.Index.Root.Reserved {
		return nil
	}
	rows, err := v.Index.All(ctx)
	if err != nil {
		return err
	}
	if r.torn, err = r.findTorn(ctx, rows); err != nil || !published.IsOfRollout(v.Index.Root.Doing) {
		return err
	}
	taken, err := index.Find(ctx, maps.Keys(r.torn), func(ctx context.Context, name string) (*spec.Published, error) {
		return r.readMoved(ctx, name, rows[name])
	})
	if err != nil {
		return err
	}
	for name, row := range taken {
		v.Index.Set(name, *row)
	}
	if len(taken) > 0 {
		r.Say("%s was cut: %s had moved, and stay so", v.Index.Root.Doing.Verb, plain.Count(len(taken), "node"))
	}
	return nil
}

// readMoved returns the row of a node that a rollout moved before it was cut; nil where what
// its tag leads to does not count, or the node is held. It is put right like any other then.
func (r *Run) readMoved(ctx context.Context, name string, was spec.Published) (*spec.Published, error) {
	if holds, _ := published.SplitHolds(was.Holds, r.Publisher.Now); len(holds) > 0 {
		return nil, nil
	}
	l, err := r.Given(ctx, name, was)
	if errors.Is(err, oci.ErrNotFound) || refusal.Of(err) != "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := Work{Was: &was, Overlay: oci.Digest(l.Candidate.Document)}
	return &spec.Published{Manifest: l.Candidate.Manifest, Overlay: w.Overlay, Layer: l.Overlay.Layer, Generation: l.Accepted.Floor.Generation,
		Expires: l.Accepted.Expires.Unix(), Match: l.Overlay.Match, Size: int64(len(l.Candidate.Document)), Before: w.before()}, nil
}

// repairTags adds to a change what puts right a publish that was cut: nodes whose tag it has
// moved, and that the change does not publish, get again what their row says, of the new
// generation.
func (r *Run) repairTags(ctx context.Context) error {
	if !r.Reserved() {
		return nil
	}
	c, torn := r.Plan, maps.Clone(r.torn)
	for _, w := range c.Todo {
		if !w.resigned {
			delete(torn, w.Name)
		}
	}
	for name := range torn {
		_, listed, err := c.Index.Row(ctx, name)
		if err != nil {
			return err
		}
		if !listed {
			delete(torn, name) // it is retired
		}
	}
	c.Todo = slices.DeleteFunc(c.Todo, func(w Work) bool { return torn[w.Name] }) // a signature alone would not do
	c.Rows = true                                                                 // the generation that was given out is nobody's
	if len(torn) > 0 {
		what, _ := published.CutChange(r.State.Index.Root)
		r.Say("%s: %s to get again what the index says", what, plain.Count(len(torn), "node"))
	}
	todo, err := r.RenewKept(ctx, slices.Sorted(maps.Keys(torn)), func(string) bool { return true })
	c.Todo = append(c.Todo, todo...)
	return err
}

// findTorn returns the nodes whose tag does not name the overlay of their row: a publish
// was cut after it had moved them.
func (r *Run) findTorn(ctx context.Context, rows index.Rows) (map[string]bool, error) {
	names := maps.Keys(rows)
	if moves := r.State.Index.Root.Moves; moves != nil {
		isNew := func(name string) bool { _, listed := rows[name]; return !listed }
		names = slices.Values(slices.DeleteFunc(slices.Clone(moves), isNew))
	}
	return index.Find(ctx, names, func(ctx context.Context, name string) (bool, error) {
		resp, err := r.Publisher.Registry.Source().Manifest(ctx, oci.RepoNode, name, "")
		if err != nil && !errors.Is(err, oci.ErrNotFound) {
			return false, err
		}
		return err != nil || resp.Digest != rows[name].Manifest, nil
	})
}

// maxMoves is how many nodes an index names of a change that is under way: some 200 kB.
const maxMoves = 10_000

// moves returns the nodes whose tags a change may move, and those that one before it moved and was
// cut: who follows reads the tags of no others. Nil where they are too many to name.
func (r *Run) moves() []string {
	names := map[string]bool{}
	maps.Copy(names, r.torn)
	for _, w := range r.Plan.Todo {
		names[w.Name] = true
	}
	if len(names) > maxMoves {
		return nil
	}
	list := slices.AppendSeq([]string{}, maps.Keys(names)) // none is not nil
	slices.Sort(list)
	return list
}
