// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// Lists changes the lists of fleet:current.
type Lists struct {
	Reject []string     // digests of overlays or layers that nodes must not run
	Allow  []string     // taken off the list
	Given  []string     // generations, as in 0-16: what each gave to nodes is rejected, see [Run.given]
	Unseen bool         // reject also what nobody has and the registry has not
	Loader *spec.Loader // takes the place of the one of its architecture; nil changes none
}

// Refresh renews the signature of fleet:current, and of overlays that are to
// expire. No content changes and no generation is taken, but after a publish that was
// cut: its nodes get again what they had. It runs daily.
func (p *Publisher) Refresh(ctx context.Context, lists Lists) (*Result, error) {
	return p.RunAlone(ctx, p.Trusted(), published.Purpose{Half: true}, func(ctx context.Context, r *Run) error { return r.Refresh(ctx, lists) })
}

// Refresh is [Publisher.Refresh] of a run.
func (r *Run) Refresh(ctx context.Context, lists Lists) error {
	if err := r.mayChange(); err != nil {
		return err
	}
	v := r.State
	rows, err := v.Index.All(ctx)
	if err != nil {
		return err
	}
	reject, err := r.reject(ctx, lists, rows)
	if err != nil {
		return err
	}
	if lists.Loader != nil {
		if err := r.setLoader(*lists.Loader); err != nil {
			return err
		}
	}
	x := r.Next()
	if r.Reserved() {
		x = r.following()
	}
	if len(rows) == 0 && r.Reserved() {
		return r.Publisher.Unpublished() // the first publish was cut: there is nothing to go back to
	}
	r.Begin(published.VerbRefresh, By{Author: r.Publisher.Author, Reason: "a publish was cut"}, x)
	r.Result.Rejected, r.Result.Allowed = plain.Without(reject, v.Rejected()), plain.Without(v.Rejected(), reject)
	r.Plan.reject = reject
	var names []string
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if r.isOld(rows[name].Expires, v.Policy.Lifetime) {
			names = append(names, name)
		}
	}
	if r.Plan.Todo, err = r.RenewKept(ctx, names, nil); err != nil {
		return err
	}
	if err := r.repairTags(ctx); err != nil {
		return err
	}
	r.Result.Unchanged = len(rows) - len(r.Plan.Todo)
	v.Current = &trust.FleetState{Reject: nil} // a rejected overlay is renewed like any other: the list decides on the node
	return r.Write(ctx, v.Policy)
}

// reject returns the reject list with changes, and says whose each is.
func (r *Run) reject(ctx context.Context, lists Lists, rows index.Rows) ([]string, error) {
	v := r.State
	more, err := r.list(Lists{Reject: lists.Reject})
	if err != nil {
		return nil, err
	}
	for _, d := range plain.Without(more, v.Rejected()) {
		if !r.sayRejected(d, []string{d}, rows) && !lists.Unseen && !isThere(ctx, r.Publisher.Registry, d) {
			return nil, cli.Hint("'caisson history --node NODE -o json' has the digests that a node had; --yes rejects it all the same",
				"no node has %s or had it before, and %s has no overlay and no layer of it", d, r.Publisher.Registry.Ref())
		}
	}
	for _, text := range lists.Given {
		g, err := r.Find(ctx, text)
		if err != nil {
			return nil, err
		}
		all, err := r.given(ctx, g, rows)
		if err != nil {
			return nil, err
		}
		r.sayRejected("generation "+g.String(), all, rows)
		lists.Reject = slices.Concat(lists.Reject, all)
	}
	return r.list(lists)
}

// isThere reports whether a registry has an overlay or a layer of a digest.
func isThere(ctx context.Context, in *registry.Registry, digest string) bool {
	if body, _, err := in.Blob(ctx, oci.RepoNode, digest); err == nil {
		body.Close() // nothing is read
		return true
	}
	_, _, err := in.Manifest(ctx, oci.RepoLayer, digest)
	return err == nil
}

// sayRejected names the nodes that have, or had before, what is added to the reject list, and
// reports whether there are any.
func (r *Run) sayRejected(what string, digests []string, rows index.Rows) bool {
	var have, had []string
	for _, name := range plain.Names(maps.Keys(rows)) {
		row := rows[name]
		if slices.Contains(digests, row.Overlay) || slices.Contains(digests, row.Layer) {
			have = append(have, name)
		}
		if row.Before != nil && (slices.Contains(digests, row.Before.Overlay) || slices.Contains(digests, row.Before.Layer)) {
			had = append(had, name)
		}
	}
	if len(have) > 0 {
		r.Say("%s is what is published for %s: 'caisson rollback' or another publish gives them something else", what, plain.Some(have, 5))
	}
	if len(had) > 0 {
		r.Say("%s is what was published before for %s: 'caisson rollback' does not go back to it", what, plain.Some(had, 5))
	}
	if len(have)+len(had) == 0 {
		r.Say("%s is not published for any node, and was not before: 'caisson inspect REF --node NODE' has the digests of "+
			"overlays and layers", what)
	}
	return len(have)+len(had) > 0
}

// RenewKept prepares new signatures over what nodes have, of the new generation where fresh, unless
// it is nil, says so, else of the one that each has. A node whose pause is over moves on in any
// case.
func (r *Run) RenewKept(ctx context.Context, names []string, fresh func(node string) bool) ([]Work, error) {
	x := r.Plan.Index
	todo := make([]Work, len(names))
	for i, name := range names {
		todo[i].Name = name
	}
	err := ForEach(ctx, todo, func(ctx context.Context, w *Work) error {
		row, _, err := x.Row(ctx, w.Name)
		if err != nil {
			return err
		}
		looked, err := r.Signed(ctx, w.Name)
		if err != nil {
			return err
		}
		o, doc := &looked.Overlay, looked.Candidate.Document
		w.runsOn = append([]string{}, looked.Accepted.RunsOn...) // not nil: nothing is to be found
		w.Was, w.Match, w.Layer, w.Holds, w.Kept, w.Aside = &row, o.Match, o.Layer, row.Holds, true, true
		over := o.Pause != nil && published.HoldOf(row.Holds, spec.HoldPause) == nil
		if over {
			o.Pause = nil
			o.SetNeeds()
			if doc, err = spec.Encode(o); err != nil {
				return err
			}
		}
		w.Generation, w.resigned = row.Generation, !over && (fresh == nil || !fresh(w.Name))
		if !w.resigned {
			w.Generation = x.Root.Generation
		}
		return w.SetKept(doc)
	})
	return todo, err
}

// following returns a copy of the index to change, of the next generation.
func (r *Run) following() *index.Index {
	x := r.Next()
	x.Root.Generation = max(x.Root.Generation, r.State.Seen.Reserved) + 1
	return x
}

// Next returns a copy of the index to change.
func (r *Run) Next() *index.Index {
	x := r.State.Index.Fork()
	x.Root.Reserved, x.Root.Doing, x.Root.Moves = false, nil, nil
	return x
}

// list returns the reject list with changes.
func (r *Run) list(lists Lists) ([]string, error) {
	for _, digest := range slices.Concat(lists.Reject, lists.Allow) {
		if !oci.ValidDigest(digest) {
			return nil, cli.Hint("as in sha256:<64 hex digits>", "%.80q is not a digest", digest)
		}
	}
	list := slices.Concat(r.State.Rejected(), lists.Reject)
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(d string) bool { return slices.Contains(lists.Allow, d) }), nil
}
