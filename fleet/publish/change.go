// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/registry"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/spec"
)

// overlay reads a published overlay and verifies that it is the one in the index,
// and signed as nodes demand it.
func (f *Fleet) overlay(ctx context.Context, name string) (*lookedOverlay, error) {
	row, _, err := f.v.index.Row(ctx, name)
	if err != nil {
		return nil, err
	}
	l, err := f.lookAt(ctx, name, row.Manifest, row)
	if err != nil {
		return nil, err
	}
	return l, f.p.allRules().overlay.Run(l)
}

// lookAt reads what a reference in the repository of the nodes leads to, to be checked beside a
// node's row.
func (f *Fleet) lookAt(ctx context.Context, name, reference string, row spec.Published) (l *lookedOverlay, err error) {
	l = &lookedOverlay{name: name, row: row, index: &f.v.index.Root, policy: f.v.policy, now: f.p.Now, agent: f.p.agentRules()}
	src := f.p.Registry.Source()
	resp, err := src.Manifest(ctx, oci.RepoNode, reference, "")
	if err != nil {
		return nil, err
	}
	l.candidate = trust.Candidate{Tag: name, Manifest: resp.Digest}
	l.candidate.Document, l.candidate.Bundles, err = oci.ReadOverlay(ctx, src, oci.RepoNode, resp)
	return l, err
}

// Lists changes the lists of fleet:current.
type Lists struct {
	Reject []string     // digests of overlays or layers that nodes must not run
	Allow  []string     // taken off the list
	Given  []string     // generations, as in 0-16: what each gave to nodes is rejected, see [Fleet.given]
	Unseen bool         // reject also what nobody has and the registry has not
	Loader *spec.Loader // takes the place of the one of its architecture; nil changes none
}

// Refresh renews the signature of fleet:current, and of overlays that are to
// expire. No content changes and no generation is taken, but after a publish that was
// cut: its nodes get again what they had. It runs daily.
func (p *Publisher) Refresh(ctx context.Context, lists Lists) (*Result, error) {
	return p.runAlone(ctx, p.trusted(), purpose{half: true}, func(ctx context.Context, r *run) error { return r.refresh(ctx, lists) })
}

func (r *run) refresh(ctx context.Context, lists Lists) error {
	if err := r.mayChange(); err != nil {
		return err
	}
	v := r.v
	rows, err := v.index.All(ctx)
	if err != nil {
		return err
	}
	reject, err := r.reject(ctx, lists, rows)
	if err != nil {
		return err
	}
	if lists.Loader != nil {
		if err := v.setLoader(*lists.Loader); err != nil {
			return err
		}
	}
	x := v.next()
	if r.Reserved() {
		x = v.following()
	}
	if len(rows) == 0 && r.Reserved() {
		return r.p.unpublished() // the first publish was cut: there is nothing to go back to
	}
	r.begin(verbRefresh, By{Author: r.p.Author, Reason: "a publish was cut"}, x)
	r.result.Rejected, r.result.Allowed = without(reject, v.rejected()), without(v.rejected(), reject)
	r.plan.reject = reject
	var names []string
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if r.isOld(rows[name].Expires, v.policy.Lifetime) {
			names = append(names, name)
		}
	}
	if r.plan.todo, err = r.renewKept(ctx, names, noNode); err != nil {
		return err
	}
	if err := r.repairTags(ctx); err != nil {
		return err
	}
	r.result.Unchanged = len(rows) - len(r.plan.todo)
	v.current = &trust.FleetState{Reject: nil} // a rejected overlay is renewed like any other: the list decides on the node
	return r.write(ctx, v.policy)
}

// reject returns the reject list with changes, and says whose each is.
func (f *Fleet) reject(ctx context.Context, lists Lists, rows index.Rows) ([]string, error) {
	v := f.v
	more, err := v.list(Lists{Reject: lists.Reject})
	if err != nil {
		return nil, err
	}
	for _, d := range without(more, v.rejected()) {
		if !f.sayRejected(d, []string{d}, rows) && !lists.Unseen && !isThere(ctx, f.p.Registry, d) {
			return nil, hint("'caisson history --node NODE -o json' has the digests that a node had; --yes rejects it all the same",
				"no node has %s or had it before, and %s has no overlay and no layer of it", d, f.p.Registry.Ref())
		}
	}
	for _, text := range lists.Given {
		g, err := f.Find(ctx, text)
		if err != nil {
			return nil, err
		}
		all, err := f.given(ctx, g, rows)
		if err != nil {
			return nil, err
		}
		f.sayRejected("generation "+g.String(), all, rows)
		lists.Reject = slices.Concat(lists.Reject, all)
	}
	return v.list(lists)
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
func (f *Fleet) sayRejected(what string, digests []string, rows index.Rows) bool {
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
		f.Say("%s is what is published for %s: 'caisson rollback' or another publish gives them something else", what, plain.Some(have, 5))
	}
	if len(had) > 0 {
		f.Say("%s is what was published before for %s: 'caisson rollback' does not go back to it", what, plain.Some(had, 5))
	}
	if len(have)+len(had) == 0 {
		f.Say("%s is not published for any node, and was not before: 'caisson inspect REF --node NODE' has the digests of "+
			"overlays and layers", what)
	}
	return len(have)+len(had) > 0
}

// renewKept prepares new signatures over what nodes have, of the new generation where fresh
// says so, else of the one that each has. A node whose pause is over moves on in any
// case.
func (r *run) renewKept(ctx context.Context, names []string, fresh func(node string) bool) ([]work, error) {
	x := r.plan.index
	todo := make([]work, len(names))
	for i, name := range names {
		todo[i].name = name
	}
	err := forEach(ctx, todo, func(ctx context.Context, w *work) error {
		row, _, err := x.Row(ctx, w.name)
		if err != nil {
			return err
		}
		looked, err := r.overlay(ctx, w.name)
		if err != nil {
			return err
		}
		o, doc := &looked.overlay, looked.candidate.Document
		w.runsOn = append([]string{}, looked.accepted.RunsOn...) // not nil: nothing is to be found
		w.was, w.match, w.layer, w.holds, w.kept, w.aside = &row, o.Match, o.Layer, row.Holds, true, true
		over := o.Pause != nil && holdOf(row.Holds, spec.HoldPause) == nil
		if over {
			o.Pause = nil
			o.SetNeeds()
			if doc, err = spec.Encode(o); err != nil {
				return err
			}
		}
		w.generation, w.resigned = row.Generation, !over && !fresh(w.name)
		if !w.resigned {
			w.generation = x.Root.Generation
		}
		return w.setKept(doc)
	})
	return todo, err
}

// For [run.renewKept]: who takes the new generation.
func noNode(string) bool    { return false }
func everyNode(string) bool { return true }

// following returns a copy of the index to change, of the next generation.
func (v *view) following() *index.Index {
	x := v.next()
	x.Root.Generation = max(x.Root.Generation, v.seen.Reserved) + 1
	return x
}

// next returns a copy of the index to change.
func (v *view) next() *index.Index {
	x := v.index.Fork()
	x.Root.Reserved, x.Root.Doing, x.Root.Moves = false, nil, nil
	return x
}

// rejected returns the present reject list.
func (v *view) rejected() []string {
	if v.current == nil {
		return nil
	}
	return v.current.Reject
}

// list returns the reject list with changes.
func (v *view) list(lists Lists) ([]string, error) {
	for _, digest := range slices.Concat(lists.Reject, lists.Allow) {
		if !oci.ValidDigest(digest) {
			return nil, hint("as in sha256:<64 hex digits>", "%.80q is not a digest", digest)
		}
	}
	list := slices.Concat(v.rejected(), lists.Reject)
	slices.Sort(list)
	list = slices.Compact(list)
	return slices.DeleteFunc(list, func(d string) bool { return slices.Contains(lists.Allow, d) }), nil
}

// without returns what of a list another one lacks.
func without(list, other []string) []string {
	out := []string{} // a list of JSON
	for _, d := range list {
		if !slices.Contains(other, d) {
			out = append(out, d)
		}
	}
	return out
}

// didYouMean asks for the published node whose name is near to another word.
func didYouMean(name string, rows index.Rows) string {
	if like := plain.Nearest(name, maps.Keys(rows)); like != "" {
		return "did you mean " + like + "? "
	}
	return ""
}

func isNotFound(err error) bool { return errors.Is(err, oci.ErrNotFound) }

// ofNode says which node an error is about.
func ofNode(name string, err error) error {
	if err != nil {
		err = fmt.Errorf("node %s: %w", name, err)
	}
	return err
}
