// SPDX-License-Identifier: Apache-2.0

// Package rotate has other keys of a fleet count.
//
// A version of the keys counts for a node that has walked to it. So [Keys] signs anew, by the next
// version's keys, all that nodes have or may go back to, before it gives the version out. It writes
// by package publish, as every change of a fleet does; what a site says of keys, and where they
// are read from, is up to package policy, which imports it.
package rotate

import (
	"context"
	"crypto"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/fleet/publish"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Rotation is a version of the keys that is to count, and who signs for it. The publisher's
// signers are operators of that version; those of the version before may be among them.
type Rotation struct {
	publish.By
	Next    spec.Keys       // the version after the newest; its number and its predecessor are filled in
	Root    []crypto.Signer // enough root keys of the version before, and enough of its own
	Release crypto.Signer   // of that version; nil where its release keys stay
	// digest of the index that is current, where only a key that is revoked says so and the memory
	// does not have it; may be empty
	Layers string
	Epoch  crypto.Signer // of that version; nil where its epoch keys stay, or the epoch is 0

	Known map[string]*spec.KeysKnown // what nodes have reported of the keys that they know; nil of one whose boot files begin no chain
	Lose  []string                   // nodes that may be lost, see checkLost
}

// Keys has other keys count. First everything that nodes hold or may be given again is
// signed by the new keys, beside the signatures that it has: rows, holds, kept generations, and
// the layers in use and in those. The version itself is published after all of it, so that at each
// moment a node that could boot before can boot now, whichever version it knows; then
// fleet:current names it. Cut anywhere, the same call takes it up: it is done when fleet:current
// names the version. Where it does already there is no result.
func Keys(ctx context.Context, p *publish.Publisher, policy published.Policy, r Rotation) (*chain.Chain, *publish.Result, error) {
	now, err := p.Follow(ctx, policy, false)
	if err != nil {
		return nil, nil, err
	}
	if now.Chain == nil {
		return nil, nil, errors.New("the site has no version of the keys to go on from")
	}
	now.Site = false // what it is to be completed from is the version, not the site
	newest := now.Chain.Newest().Keys
	changes, err := published.CompareRoles(newest.Roles, r.Next.Roles)
	if err != nil {
		return nil, nil, err
	}
	versions, err := now.Versions()
	if err != nil {
		return nil, nil, err
	}
	now.Former = versions[1:] // rotations may have been cut before they wrote fleet:current
	if len(changes) == 0 && slices.Equal(newest.Revoked, r.Next.Revoked) {
		named, err := namesKeys(ctx, p, now)
		if err != nil || named || len(now.Former) == 0 {
			return now.Chain, nil, err
		}
		result, err := p.RunAlone(ctx, now, published.Purpose{Half: true}, func(ctx context.Context, r *publish.Run) error {
			r.Publisher.Signers = slices.DeleteFunc(slices.Clone(r.Publisher.Signers), func(s crypto.Signer) bool {
				_, counts := sign.Find(now.Operator, s.Public())
				return !counts
			})
			return r.Refresh(ctx, publish.Lists{})
		})
		return now.Chain, result, err
	}
	c, next, err := r.sign(now)
	if err != nil {
		return nil, nil, err
	}
	if err := checkSuccessors(p.Signers, now, next); err != nil {
		return nil, nil, err
	}
	rotate := func(ctx context.Context, at *publish.Run) error { return (&rotating{at, r, now, next}).rotate(ctx) }
	result, err := p.RunAlone(ctx, now, published.Purpose{Half: true}, rotate)
	if refusal.OfKeys(err) { // it was cut after the index was signed again
		next.Former = append([]published.Policy{now}, now.Former...)
		if again, refused := p.RunAlone(ctx, next, published.Purpose{Half: true}, rotate); !refusal.OfKeys(refused) {
			result, err = again, refused
		}
	}
	return c, result, err
}

// namesKeys reports whether fleet:current names the newest version of the keys, or nothing is
// published that could.
func namesKeys(ctx context.Context, p *publish.Publisher, now published.Policy) (bool, error) {
	f, err := p.Open(ctx, now, published.Purpose{Half: true})
	if err != nil {
		return false, err
	}
	v := f.State()
	return v.Index == nil || v.Current.Keys >= now.Chain.Version(), nil
}

// sign makes the next version and returns the chain with it, and the policy that it gives.
func (r *Rotation) sign(now published.Policy) (*chain.Chain, published.Policy, error) {
	newest := now.Chain.Newest()
	if err := publish.KeepsAll(fmt.Sprintf("version %d of the keys", newest.Keys.Version), newest.LeftOut); err != nil {
		return nil, now, err
	}
	doc := r.Next
	doc.APIVersion, doc.Kind, doc.Fleet = spec.APIVersion, spec.KindKeys, newest.Keys.Fleet
	doc.Version, doc.Previous = newest.Keys.Version+1, newest.Digest
	candidate, err := SignKeys(doc, r.Root)
	if err != nil {
		return nil, now, err
	}
	c := now.Chain.Fork()
	if _, err := c.Add(candidate); err != nil {
		return nil, now, err
	}
	next, err := now.With(c)
	return c, next, err
}

// SignKeys signs a version of the keys with each of some root keys.
func SignKeys(doc spec.Keys, root []crypto.Signer) (trust.Candidate, error) {
	raw, err := spec.Encode(doc)
	if err != nil {
		return trust.Candidate{}, err
	}
	said := sign.KeysPredicate{Fleet: doc.Fleet, Version: doc.Version, IssuedAt: doc.At}
	bundles, err := sign.Each(root, func(s crypto.Signer) ([]byte, error) { return sign.SignKeys(s, oci.Digest(raw), said) })
	return trust.Candidate{Document: raw, Bundles: bundles}, err
}

// checkSuccessors refuses signers that neither version names, and too few of the next one.
func checkSuccessors(signers []crypto.Signer, now, next published.Policy) error {
	seen := map[string]bool{}
	for _, s := range signers {
		if pub, ok := sign.Find(next.Operator, s.Public()); ok {
			seen[pub.ID()] = true
		} else if _, ok := sign.Find(now.Operator, s.Public()); !ok {
			return cli.Hint("--key names operators of the version that is to count, and of the one before",
				"a signing key is not an operator key of either version")
		}
	}
	if len(seen) < next.Threshold {
		given := "none of the new operator keys was given"
		if n := len(seen); n > 0 {
			given = fmt.Sprintf("of the new operator keys %d were given", n)
		}
		return cli.Hint("give --key once for each", "%s; needed: %d", given, next.Threshold)
	}
	return nil
}

// rotating is a rotation at work: what it has signed again of what is published, that nodes
// which know the keys of before or the next ones can boot.
type rotating struct {
	*publish.Run
	Rotation
	now, next published.Policy
}

func (r *rotating) rotate(ctx context.Context) error {
	if r.State.Index == nil {
		return r.Publisher.Unpublished()
	}
	x := r.Run.Next()
	if x.Root.Reserved {
		return cli.Hint("'caisson refresh' puts it right", "a publish is unfinished")
	}
	x.Root.Operator, x.Root.Release, x.Root.Threshold = sign.PEMs(r.next.Operator), sign.PEMs(r.next.Release), r.next.Threshold
	grant, err := r.grant()
	if err != nil {
		return err
	}
	if err := r.checkLost(ctx, grant); err != nil {
		return err
	}
	x.Root.Grant = grant
	if err := r.markForeign(ctx, x); err != nil {
		return err
	}
	past, err := r.keptPast(ctx)
	if err != nil {
		return err
	}
	if err := r.resignLayers(ctx, past); err != nil {
		return err
	}
	if err := r.resignPast(ctx, past); err != nil {
		return err
	}
	rows, err := x.All(ctx)
	if err != nil {
		return err
	}
	r.Begin("keys", r.By, x)
	r.Plan.Keys, r.Plan.Judges = r.next.Chain, []published.Policy{r.next}
	if r.Plan.Todo, err = r.RenewKept(ctx, slices.Sorted(maps.Keys(rows)), nil); err != nil {
		return err
	}
	if err := r.keepBundles(ctx, r.Plan.Todo); err != nil {
		return err
	}
	r.State.Current = &trust.FleetState{} // a rejected overlay is signed like any other: the list decides on the node
	r.State.Policy.Chain = r.now.Chain
	return r.Write(ctx, r.now)
}

// keepBundles has each node keep the signatures by operators of the version before, and has
// the further ones say the same: until, and for whom.
func (r *rotating) keepBundles(ctx context.Context, todo []publish.Work) error {
	mine := sign.SignerIDs(r.Publisher.Signers)
	return publish.ForEach(ctx, todo, func(ctx context.Context, w *publish.Work) error {
		looked, err := r.Signed(ctx, w.Name)
		if err != nil {
			return err
		}
		w.Valid = &publish.Validity{From: looked.Accepted.IssuedAt, Until: looked.Accepted.Expires}
		for _, b := range looked.Candidate.Bundles {
			said, err := sign.VerifyOverlay([][]byte{b}, r.now.Operator, 1, w.Overlay)
			if err == nil && !mine[said.Keys[0]] || err != nil && sign.VerifyEpoch([][]byte{b}, r.now.Epoch, r.State.Policy.Fleet,
				r.State.Index.Root.Epoch) == nil {
				w.Bundles = append(w.Bundles, b)
			}
		}
		return nil
	})
}

// grant returns the epoch key's permission that goes with the next version: the present one,
// or one by its epoch keys.
func (r *rotating) grant() ([]byte, error) {
	x, next, by := r.State.Index.Root, r.next, r.Epoch
	if x.Epoch == 0 || sign.VerifyEpoch([][]byte{x.Grant}, next.Epoch, x.Fleet, x.Epoch) == nil {
		return x.Grant, nil
	}
	if by == nil {
		return nil, cli.Hint("--epoch-key names one of the epoch keys that are to count",
			"the fleet is at epoch %d, which none of the new epoch keys has permitted", x.Epoch)
	}
	if _, ok := sign.Find(next.Epoch, by.Public()); !ok {
		return nil, cli.Hint("trust.keys.epoch of the site names them", "--epoch-key is not an epoch key that is to count")
	}
	return sign.SignEpoch(by, sign.EpochPredicate{Fleet: x.Fleet, Epoch: x.Epoch})
}

// Why a rotation would lose nodes.
const (
	lostUntilBoot  = "the agent of their layer does not follow the keys, and refuses until its next boot what is published after this"
	lostForNewBoot = "their boot files begin no chain of keys, and until they are written again the nodes refuse what is published after this"
)

// checkLost refuses a rotation that would lose nodes which the operator did not name: they
// would refuse what the signers of this rotation publish after it. A node that follows the
// keys is not lost, whichever version it knows: it walks on from there.
func (r *rotating) checkLost(ctx context.Context, grant []byte) error {
	rows, err := r.State.Index.All(ctx)
	if err != nil {
		return err
	}
	for _, name := range r.Lose {
		if _, there := rows[name]; !there {
			return cli.Hint(strings.TrimSpace(plain.DidYouMean(name, maps.Keys(rows))+" 'caisson verify' lists the nodes"),
				"node %q, which may be lost, is not published", name)
		}
	}
	if stays, err := r.staysSigned(grant); stays || err != nil {
		return err
	}
	older, err := r.WithoutFeature(ctx, spec.KeyChainFeature)
	if err != nil {
		return err
	}
	var unchained []string
	for _, name := range plain.Names(maps.Keys(rows)) {
		if known, said := r.Known[name]; said && known == nil && !slices.Contains(older, name) {
			unchained = append(unchained, name)
		}
	}
	var lost []string
	for _, of := range []struct {
		nodes []string
		why   string
	}{{older, lostUntilBoot}, {unchained, lostForNewBoot}} {
		if nodes := plain.Without(of.nodes, r.Lose); len(nodes) > 0 {
			lost = append(lost, fmt.Sprintf("%s: %s", plain.Some(nodes, 20), of.why))
		}
	}
	if lost == nil {
		return nil
	}
	return cli.Hint("give them a newer layer, or boot files that are written again, and boot them; --lose NODE names each "+
		"that may be lost; 'caisson keys plan' lists them",
		"nodes would be lost that need a key which leaves: %s", strings.Join(lost, "; "))
}

// staysSigned reports whether what these signers publish after a rotation is signed as those
// demand it who go on knowing one version of the keys alone: that before it, or an earlier one
// whose operators were still enough. Who knows none of these was lost before.
func (r *rotating) staysSigned(grant []byte) (bool, error) {
	versions, err := r.now.Versions()
	if err != nil {
		return false, err
	}
	counts := func(s crypto.Signer) (sign.Verifier, bool) { return sign.Find(r.next.Operator, s.Public()) }
	signers := plain.Pick(r.Publisher.Signers, counts) // after it
	x := r.State.Index.Root
	granted := func(of published.Policy, grant []byte) bool {
		return x.Epoch == 0 || sign.VerifyEpoch([][]byte{grant}, of.Epoch, x.Fleet, x.Epoch) == nil
	}
	for _, of := range versions {
		was := common(of.Operator, r.now.Operator) >= of.Threshold && granted(of, x.Grant)
		if was && (common(of.Operator, signers) < of.Threshold || !granted(of, grant)) {
			return false, nil
		}
	}
	return true, nil
}

// common counts the keys that are in both lists.
func common(a, b []sign.Verifier) int {
	ids := func(keys []sign.Verifier) map[string]bool {
		return plain.Map(keys, func(k sign.Verifier) (string, bool) { return k.ID(), true })
	}
	both, other := ids(a), ids(b)
	maps.DeleteFunc(both, func(id string, _ bool) bool { return !other[id] })
	return len(both)
}
