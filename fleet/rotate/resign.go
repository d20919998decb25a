// SPDX-License-Identifier: Apache-2.0

package rotate

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/builder/release"
	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// keptRoot is the root of a kept generation, verified.
type keptRoot struct {
	*published.Past
	signed bool // by enough operators of the next version
}

// keptPast returns the generations that are kept, but for the present one, as far as they
// verify by the operators who count before a rotation, without those that it revokes, or by
// the next. What only revoked keys signed is left out: a thief who has them can make any
// generation, of any age, and to sign it again would make it the fleet's word. What this publisher
// remembers by its digest is its own, by any signature. Nodes can still go back to what the verified index says that they had before.
func (r *rotating) keptPast(ctx context.Context) (past []keptRoot, err error) {
	list, err := r.Generations(ctx)
	if err != nil {
		return nil, err
	}
	own := r.remembered(ctx)
	before, enough := r.now.Without(r.next.Revoked())
	present := published.GenerationOf(r.State.Index.Root)
	var lost []string
	var why error
	for _, g := range list {
		if g == present {
			continue // it is written with fleet:index
		}
		l, err := r.Publisher.Past(ctx, r.next, g)
		signed := err == nil
		if refusal.OfKeys(err) && enough {
			l, err = r.Publisher.Past(ctx, before, g)
		}
		if own != nil && own.Generation == g {
			l, err = own, nil
		}
		switch {
		case err == nil:
			past = append(past, keptRoot{l, signed})
		case refusal.Of(err) != "":
			lost, why = append(lost, g.String()), cmp.Or(why, err)
		case !errors.Is(err, oci.ErrNotFound): // else it was pruned meanwhile
			return nil, err
		}
	}
	if len(lost) > 0 {
		r.Say("generations %s are not signed again, and no node can go back to them: %v", plain.Some(lost, 5), why)
	}
	return past, nil
}

// resignPast puts kept generations again, with the signatures of those who sign now beside
// those that they have. Each says what was said before: its time of issue stays.
func (r *rotating) resignPast(ctx context.Context, past []keptRoot) error {
	if r.Publisher.Dry {
		return nil
	}
	mine := sign.SignerIDs(r.Publisher.Signers)
	for _, g := range past {
		if g.signed {
			continue
		}
		raw := g.Candidate.Document
		var bundles [][]byte
		for _, b := range g.Candidate.Bundles {
			said, err := sign.VerifyFleet([][]byte{b}, r.now.Operator, 1, oci.Digest(raw), sign.PredicateIndex)
			if err == nil && !mine[said.Keys[0]] {
				bundles = append(bundles, b)
			}
		}
		added, err := sign.Each(r.Publisher.Signers, func(s crypto.Signer) ([]byte, error) {
			return sign.SignFleet(s, oci.Digest(raw), sign.PredicateIndex, g.Said)
		})
		if err != nil {
			return err
		}
		if _, err := r.Publisher.PutSigned(ctx, oci.TypeFleetIndex, raw, []string{g.Tag()}, append(bundles, added...)...); err != nil {
			return fmt.Errorf("sign generation %s: %w", g.Generation, err)
		}
	}
	return nil
}

// resignLayers has a release key of the next version sign each layer that nodes have, had
// before, or could go back to. One that only earlier generations name and that is gone is
// left out: nobody goes back to it.
func (r *rotating) resignLayers(ctx context.Context, past []keptRoot) error {
	now, next, key := r.now, r.next, r.Release
	changes, err := published.CompareRoles(spec.Roles{Release: now.Roles().Release}, spec.Roles{Release: next.Roles().Release})
	if err != nil || len(changes) == 0 || len(next.Release) == 0 {
		return err
	}
	if key == nil {
		return cli.Hint("--release-key names one of the release keys that are to count",
			"layers must be signed by a release key of the next version")
	}
	if _, ok := sign.Find(next.Release, key.Public()); !ok {
		return cli.Hint("trust.keys.release of the site names them", "--release-key is not a release key that is to count")
	}
	rows, err := r.State.Index.All(ctx)
	if err != nil {
		return err
	}
	trusted := slices.Concat(now.Release, next.Release)
	layers, had := map[string]bool{}, map[string]bool{}
	for _, row := range rows {
		layers[row.Layer] = true
	}
	noteLayers(had, rows)
	for _, g := range past {
		if rows, err = g.Nodes(ctx); err != nil {
			return err
		}
		noteLayers(had, rows)
	}
	for _, digest := range slices.Sorted(maps.Keys(had)) {
		if digest == "" || layers[digest] {
			continue
		}
		switch err := release.Verify(ctx, r.Publisher.Registry, digest, trusted); {
		case err == nil:
			layers[digest] = true
		case published.Lost(err):
			r.Say("layer %s is not signed again, and no node can go back to it: %v", digest, err)
		default:
			return err
		}
	}
	delete(layers, "")
	by := release.Resigning{Layers: slices.Sorted(maps.Keys(layers)), Trusted: trusted,
		Seen: cmp.Or(r.Layers, r.State.Seen.Layers.Digest), By: key, Now: r.Publisher.Now, Dry: r.Publisher.Dry}
	by.Stated = slices.DeleteFunc(slices.Clone(trusted), func(k sign.Verifier) bool { return slices.Contains(next.Revoked(), k.ID()) })
	switch err := release.Resign(ctx, r.Publisher.Registry, by); {
	case errors.Is(err, release.ErrNotStated):
		r.Say("layer:current is not signed again, since only a key that is revoked says what it is: %v; if you know that "+
			"you built it, name it by --layers; else 'caisson build' with --previous REF@DIGEST, of layers that you know, "+
			"makes another current", err)
	case err != nil:
		return fmt.Errorf("sign the layers in use: %w", err)
	}
	return nil
}

// noteLayers adds the layers of rows, and of what nodes had before.
func noteLayers(layers map[string]bool, rows index.Rows) {
	for _, row := range rows {
		layers[row.Layer] = true
		if row.Before != nil {
			layers[row.Before.Layer] = true
		}
	}
}

// markForeign marks what this publisher has not given out, where an operator's key is revoked:
// a thief may have. What nodes have is signed again all the same, else those that run it could not
// boot; but no node goes back to it. What the rows of such an index say that
// nodes had before is its maker's word, too: what this publisher gave out last takes its place.
func (r *rotating) markForeign(ctx context.Context, x *index.Index) error {
	kept, _ := r.now.Without(r.next.Revoked())
	if len(kept.Operator) == len(r.now.Operator) {
		return nil
	}
	seen, known := r.Publisher.Memory.At(r.Publisher.Registry.Ref().String())
	if !known {
		r.Say("nothing is remembered of %s: whether somebody else gave out generations with the revoked key is not known",
			r.Publisher.Registry.Ref())
		return nil
	}
	own := seen.Mine()
	span := spec.Span{Epoch: x.Root.Epoch, From: 1, To: x.Root.Generation}
	if own.Epoch == x.Root.Epoch {
		span.From = min(own.Generation+1, span.To)
	}
	revoked := plain.Map(r.next.Revoked(), func(id string) (string, bool) { return id, true })
	first, last := published.Generation{Epoch: span.Epoch, Number: span.From}, published.GenerationOf(x.Root)
	if r.IsOwn(own, revoked) {
		if len(r.State.By) > 0 && !slices.ContainsFunc(r.State.By, func(id string) bool { return !revoked[id] }) {
			r.Say("generation %s was published from here with revoked keys alone, and is signed again as it is: 'caisson plan' "+
				"says what differs from the site", last)
		}
		return nil
	}
	r.Say("generations %s to %s were not published from here (%s), and the last is signed again as it is, forged or not: "+
		"'caisson plan' says what differs from the site; publish after this, then 'caisson refresh --reject GENERATION' for each",
		first, last, r.Publisher.Memory.Name())
	if !r.Foreign(last) {
		x.Root.Foreign = append(slices.Clone(x.Root.Foreign), span)
	}
	rows, err := x.All(ctx)
	if err != nil {
		return err
	}
	given := index.Rows{}
	if l := r.remembered(ctx); l == nil {
		r.Say("what nodes had before that is not known: 'caisson rollback' does not go back behind it")
	} else if given, err = l.Nodes(ctx); err != nil {
		return err
	}
	for name, row := range rows {
		own, there := given[name]
		switch row.Foreign = true; {
		case !there:
			row.Before = nil
		case own.Overlay == row.Overlay:
			row.Foreign, row.Before = own.Foreign, own.Before
		case own.Foreign:
			row.Before = own.Before
		default:
			row.Before = own.Content()
		}
		x.Set(name, row)
	}
	r.Own = &published.Own{Epoch: x.Root.Epoch, Generation: x.Root.Generation, Digest: r.State.Digest} // all others are marked above
	return nil
}

// remembered returns the root of the newest generation that is this publisher's alone, nil where that
// cannot be had: only its digest proves it.
func (r *rotating) remembered(ctx context.Context) *published.Past {
	seen, _ := r.Publisher.Memory.At(r.Publisher.Registry.Ref().String())
	own := seen.Mine()
	for _, g := range []published.Generation{published.GenerationOf(r.State.Index.Root), {Epoch: own.Epoch, Number: own.Generation}} {
		for _, by := range []published.Policy{r.now, r.next} { // a run that was cut may have signed it again
			l, err := r.Publisher.Past(ctx, by, g)
			if err == nil && own.Has(oci.Digest(l.Candidate.Document)) {
				return l
			}
		}
	}
	return nil
}
