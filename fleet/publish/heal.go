// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// adoptMoves finds the nodes whose tag a publish that was cut has moved. Where that was a
// rollout's, their rows say from now on what it gave them: its next step goes on with
// the wave or with the way back, and moves none of them once more. It changes the view,
// and so what is written next, be that cut as well.
func (f *Fleet) adoptMoves(ctx context.Context) error {
	v := f.v
	if v.index == nil || !v.index.Root.Reserved {
		return nil
	}
	rows, err := v.index.All(ctx)
	if err != nil {
		return err
	}
	if v.torn, err = f.findTorn(ctx, rows); err != nil || !isOfRollout(v.index.Root.Doing) {
		return err
	}
	taken, err := findEach(ctx, maps.Keys(v.torn), func(ctx context.Context, name string) (*spec.Published, error) {
		return f.readMoved(ctx, name, rows[name])
	})
	if err != nil {
		return err
	}
	for name, row := range taken {
		v.index.Set(name, *row)
	}
	if len(taken) > 0 {
		f.Say("%s was cut: %s had moved, and stay so", v.index.Root.Doing.Verb, plain.Count(len(taken), "node"))
	}
	return nil
}

// verbOfRollout begins what the index says of a rollout's changes.
const verbOfRollout = "rollout "

func isOfRollout(c *spec.FleetChange) bool {
	return c != nil && strings.HasPrefix(c.Verb, verbOfRollout)
}

// cutChange says what was cut of the generation that an index reserves, and what to do.
func cutChange(x spec.FleetIndex) (what, advice string) {
	if isOfRollout(x.Doing) {
		return fmt.Sprintf("%s was cut, generation %d", x.Doing.Verb, x.Generation),
			"'caisson rollout run' again goes on with it, and whatever else is published keeps what it moved"
	}
	verb := "publish"
	if c := x.Doing; c != nil && c.Verb != "" && c.Verb != verbMend {
		verb = c.Verb
	}
	or := ", or 'caisson refresh'"
	if verb == verbRefresh {
		or = ""
	}
	return fmt.Sprintf("a %s of generation %d was cut", verb, x.Generation),
		fmt.Sprintf("run 'caisson %s' again%s, which gives its nodes back what they had", verb, or)
}

// verbRefresh signs again what is published.
const verbRefresh = "refresh"

// verbMend is the change that puts right what a publish that was cut has left.
const verbMend = "mend"

// givenChecks is the rule for an overlay that a wave gave a node before it was cut.
var givenChecks = check.List[*lookedOverlay]{
	{Name: "given form", OK: overlayParses},
	{Name: "given accepted", OK: overlayIsAccepted},
	{Name: "given generation", OK: generationWasGivenOut},
}

// generationWasGivenOut: what is newer than the row, and not newer than what is reserved,
// was signed by publishes that were cut since.
func generationWasGivenOut(l *lookedOverlay) error {
	got := l.accepted.Floor
	if got.Epoch != l.index.Epoch || got.Generation <= l.row.Generation || got.Generation > l.index.Generation {
		return refusal.New(refusal.Contradiction, "generation %d is not between %d and %d", got.Generation, l.row.Generation, l.index.Generation)
	}
	return nil
}

// readMoved returns the row of a node that a rollout moved before it was cut; nil where what
// its tag leads to does not count, or the node is held. It is put right like any other then.
func (f *Fleet) readMoved(ctx context.Context, name string, was spec.Published) (*spec.Published, error) {
	if holds, _ := SplitHolds(was.Holds, f.p.Now); len(holds) > 0 {
		return nil, nil
	}
	l, err := f.lookAt(ctx, name, name, was)
	if err == nil {
		err = givenChecks.Run(l)
	}
	if isNotFound(err) || refusal.Of(err) != "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	w := work{was: &was, overlay: oci.Digest(l.candidate.Document)}
	return &spec.Published{Manifest: l.candidate.Manifest, Overlay: w.overlay, Layer: l.overlay.Layer, Generation: l.accepted.Floor.Generation,
		Expires: l.accepted.Expires.Unix(), Match: l.overlay.Match, Size: int64(len(l.candidate.Document)), Before: w.before()}, nil
}

// repairTags adds to a change what puts right a publish that was cut: nodes whose tag it has
// moved, and that the change does not publish, get again what their row says, of the new
// generation.
func (r *run) repairTags(ctx context.Context) error {
	if !r.Reserved() {
		return nil
	}
	c, torn := r.plan, maps.Clone(r.v.torn)
	for _, w := range c.todo {
		if !w.resigned {
			delete(torn, w.name)
		}
	}
	for name := range torn {
		_, listed, err := c.index.Row(ctx, name)
		if err != nil {
			return err
		}
		if !listed {
			delete(torn, name) // it is retired
		}
	}
	c.todo = slices.DeleteFunc(c.todo, func(w work) bool { return torn[w.name] }) // a signature alone would not do
	c.rows = true                                                                 // the generation that was given out is nobody's
	if len(torn) > 0 {
		what, _ := cutChange(r.v.index.Root)
		r.Say("%s: %s to get again what the index says", what, plain.Count(len(torn), "node"))
	}
	todo, err := r.renewKept(ctx, slices.Sorted(maps.Keys(torn)), everyNode)
	c.todo = append(c.todo, todo...)
	return err
}

// findTorn returns the nodes whose tag does not name the overlay of their row: a publish
// was cut after it had moved them.
func (f *Fleet) findTorn(ctx context.Context, rows index.Rows) (map[string]bool, error) {
	names := maps.Keys(rows)
	if moves := f.root().Moves; moves != nil {
		isNew := func(name string) bool { _, listed := rows[name]; return !listed }
		names = slices.Values(slices.DeleteFunc(slices.Clone(moves), isNew))
	}
	return findEach(ctx, names, func(ctx context.Context, name string) (bool, error) {
		resp, err := f.p.Registry.Source().Manifest(ctx, oci.RepoNode, name, "")
		if err != nil && !isNotFound(err) {
			return false, err
		}
		return err != nil || resp.Digest != rows[name].Manifest, nil
	})
}

// maxMoves is how many nodes an index names of a change that is under way: some 200 kB.
const maxMoves = 10_000

// moves returns the nodes whose tags a change may move, and those that one before it moved and was
// cut: who follows reads the tags of no others. Nil where they are too many to name.
func (r *run) moves() []string {
	names := map[string]bool{}
	maps.Copy(names, r.v.torn)
	for _, w := range r.plan.todo {
		names[w.name] = true
	}
	if len(names) > maxMoves {
		return nil
	}
	list := slices.AppendSeq([]string{}, maps.Keys(names)) // none is not nil
	slices.Sort(list)
	return list
}
