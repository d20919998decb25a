// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"cmp"
	"context"
	"crypto"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
)

// Work is one node that gets a new signature. Its Doc makes the overlay each time: a fleet's are
// too many to hold.
type Work struct {
	Node
	Was        *spec.Published // its row so far; nil for a new node
	Overlay    string          // digest of its overlay; "" where it gets none
	Size       int64           // of the overlay
	Generation uint64
	Kept       bool        // the content is what the node had at some time
	Aside      bool        // the content is what the node has, paused or not: one does not go back from it
	Holds      []spec.Hold // that the row is to have

	runsOn   []string // other layers on which what is live of it may be applied
	resigned bool     // the generation stays, too
	signed
}

// signed is how an overlay is signed.
type signed struct {
	Valid   *Validity    // of the signatures that it joins; nil is from now on
	Bundles [][]byte     // by others, that stand beside them
	by      []*sign.Once // make the signers' bundles: a fleet's are too many to hold
}

// Validity is the time for which signatures count.
type Validity struct{ From, Until time.Time }

// said is what is signed of a node.
func (w *Work) said(x *spec.FleetIndex) sign.Predicate {
	return sign.Predicate{
		Fleet: x.Fleet, Node: w.Name, Match: sign.Match(w.Match), Layer: w.Layer, Epoch: x.Epoch, Generation: w.Generation,
		IssuedAt: w.Valid.From, Expires: w.Valid.Until, RunsOn: w.runsOn,
	}
}

// allBundles makes those that stand beside an overlay.
func (w *Work) allBundles(x *spec.FleetIndex) (all [][]byte, err error) {
	all, err = sign.Each(w.by, func(s *sign.Once) ([]byte, error) { return sign.SignOverlay(s, w.Overlay, w.said(x)) })
	if x.Grant != nil {
		all = append(all, x.Grant)
	}
	return slices.Concat(w.Bundles, all), err
}

// setDocument takes the overlay that a node gets.
func (w *Work) setDocument(doc func() ([]byte, error)) error {
	data, err := doc()
	if err != nil {
		return err
	}
	w.Doc, w.Overlay, w.Size = doc, oci.Digest(data), int64(len(data))
	return nil
}

// document returns the overlay that was given, and no other.
func (w *Work) document() ([]byte, error) {
	doc, err := w.Doc()
	if err == nil && oci.Digest(doc) != w.Overlay {
		err = errors.New("its overlay was made twice, and not alike: is the site changing?")
	}
	return doc, err
}

// SetKept takes an overlay that is not made again. It is held compressed: a fleet's are many.
func (w *Work) SetKept(doc []byte) error {
	z, err := compressor()
	if err != nil {
		return err
	}
	small, size := slices.Clone(z.EncodeAll(doc, nil)), len(doc) // no larger than it is, and without doc
	w.Doc = func() ([]byte, error) { return z.DecodeAll(small, make([]byte, 0, size)) }
	w.Overlay, w.Size = oci.Digest(doc), int64(size)
	return nil
}

// compressor makes overlays small; anyone may use it at once.
var compressor = sync.OnceValues(func() (z struct {
	*zstd.Encoder
	*zstd.Decoder
}, err error) {
	if z.Encoder, err = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest)); err != nil {
		return z, err
	}
	z.Decoder, err = zstd.NewReader(nil)
	return z, err
})

// before returns what a row says that the node had before.
func (w *Work) before() *spec.Content {
	switch {
	case w.Was == nil:
		return nil
	case w.Aside || w.Was.Foreign || w.Was.Overlay == w.Overlay:
		return w.Was.Before
	}
	return w.Was.Content()
}

// Plan lists the writes of one run: a verb fills it in, and [Run.Write] carries it out.
type Plan struct {
	Index  *index.Index // rows that change without a signature are set already
	Todo   []Work
	Rows   bool               // such rows there are: that takes a generation
	Keys   *chain.Chain       // with a version that counts from now on; nil is none
	Judges []published.Policy // by whose keys a node may judge, too: of versions that are to count

	by     By
	verb   string
	reject []string // of fleet:current

	cut       map[string]spec.Rollout     // as they are should this be cut; nil is as they were
	first     func(context.Context) error // as in [Options]
	announced func(context.Context) error // as in [Step]
	placed    func()                      // as in [Step]
	written   func() error                // is called at the end of a change; nil is nothing
}

// describe returns the index's note of a change.
func (c *Plan) describe(now time.Time) *spec.FleetChange {
	return &spec.FleetChange{Verb: c.verb, Author: c.by.Author, Reason: c.by.Reason, Commit: c.by.Commit, At: now.Unix(),
		Published: count(c.Todo, takesNew)}
}

// Write signs and pushes, in the order that the package comment promises.
func (r *Run) Write(ctx context.Context, policy published.Policy) error {
	p, v, c := r.Publisher, r.State, r.Plan
	if err := r.keepsAll(); err != nil {
		return err
	}
	if c.first != nil && !p.Dry {
		if err := c.first(ctx); err != nil {
			return err
		}
	}
	p.current = v.Current
	x := c.Index
	if err := r.findLayers(ctx); err != nil {
		return err
	}
	if err := r.passOver(ctx); err != nil {
		return err
	}
	takes := c.Rows || slices.ContainsFunc(c.Todo, takesNew) // a generation
	if p.Dry {
		if !takes {
			r.Result.Generation = v.Index.Root.Generation
		}
		return r.rehearse(ctx, policy)
	}
	if err := p.signNodes(ctx, policy, &x.Root, c.Todo, c.Judges...); err != nil {
		return err
	}
	place := p.Registry.Ref().String()
	mine := r.restsOn()
	if takes {
		// Remembered first: whatever becomes of this run, the number is used.
		seen := v.Seen
		seen.Fleet, seen.Reserved, seen.Own = x.Root.Fleet, x.Root.Generation, mine
		if err := p.Memory.Set(place, seen); err != nil {
			return err
		}
		reserved := x.Root
		if reserved.Doing, reserved.Rollouts = c.describe(p.Now), v.Index.Root.Rollouts; c.cut != nil {
			reserved.Rollouts = c.cut
		}
		reserved.Moves = r.moves()
		if err := r.putReserved(ctx, policy.Lifetime, reserved); err != nil {
			return err
		}
		v.Index.Forget() // nothing reads its shards after this but who asks for them again
		if c.announced != nil {
			if err := c.announced(ctx); err != nil {
				return err
			}
		}
		x.Root.Change = c.describe(p.Now)
	} else {
		x.Root.Generation = max(v.Index.Root.Generation, 1)
		r.Result.Generation = x.Root.Generation
	}
	if err := r.pushNodes(ctx); err != nil {
		return err
	}
	if c.placed != nil {
		c.placed()
	}
	r.dropReplaced(ctx)
	stamp, err := r.putIndex(ctx, policy.Lifetime, x, published.GenerationOf(x.Root).Tag(), "index")
	if err != nil {
		return err
	}
	keys := v.Policy.Chain
	if c.Keys != nil {
		keys = c.Keys
	}
	if old := v.Current; keys != nil && old != nil && old.Keys > 0 && old.Keys < keys.Links()[0].Keys.Version {
		p.Say("this makes keys known that begin anew: each of %s refuses all that is published from now on until it boots "+
			"by boot files that are written again", plain.Count(x.Len(), "node"))
	}
	if err := p.putKeys(ctx, keys); err != nil {
		return err
	}
	current, err := r.putCurrent(ctx, keys)
	if err != nil {
		return err
	}
	if err := r.batch.Flush(); err != nil {
		return err
	}
	p.lease.NoteGiven(x.Root.Generation)
	return r.remember(mine, stamp, current)
}

// remember notes what is published now.
func (r *Run) remember(mine published.Own, stamp, current published.Stamp) error {
	place, x := r.Publisher.Registry.Ref().String(), r.Plan.Index.Root
	if r.Own != nil {
		mine = published.Own{Epoch: x.Epoch, Generation: x.Generation, Digest: stamp.Digest}
	}
	seen, _ := r.Publisher.Memory.At(place)
	seen.Fleet, seen.Epoch, seen.Generation = x.Fleet, x.Epoch, x.Generation
	seen.Index, seen.Current, seen.Own = stamp, current, mine
	return r.Publisher.Memory.Set(place, seen)
}

// takesNew reports whether a node takes the new generation.
func takesNew(w Work) bool { return !w.resigned }

// count counts the work of which is reports true.
func count(todo []Work, is func(Work) bool) (n int) {
	for _, w := range todo {
		if is(w) {
			n++
		}
	}
	return n
}

// ForEach does f for every piece of work, several at once. The first error ends it.
func ForEach(ctx context.Context, todo []Work, f func(context.Context, *Work) error) error {
	return index.Each(ctx, len(todo), func(ctx context.Context, i int) error { return index.OfNode(todo[i].Name, f(ctx, &todo[i])) })
}

// signNodes signs all and asks the node's own decision about each, before the
// first one is pushed.
func (p *Publisher) signNodes(ctx context.Context, policy published.Policy, x *spec.FleetIndex, todo []Work,
	also ...published.Policy) error {
	now := &Validity{p.Now, p.Now.Add(policy.Lifetime)}
	return ForEach(ctx, todo, func(_ context.Context, w *Work) error {
		doc, err := w.document()
		if err != nil {
			return err
		}
		w.Valid = cmp.Or(w.Valid, now)
		w.by = plain.Each(p.Signers, func(s crypto.Signer) *sign.Once { return &sign.Once{By: s} })
		bundles, err := w.allBundles(x)
		if err != nil {
			return err
		}
		c := trust.Candidate{Document: doc, Bundles: bundles}
		for _, by := range append([]published.Policy{policy}, also...) {
			if err := p.rehearse(sign.PEMs(by.Operator), by.Threshold, x, w, c); err != nil {
				return published.HintReject(fmt.Errorf("the node would refuse this: %w", err))
			}
		}
		return nil
	})
}

func (r *Run) pushNodes(ctx context.Context) error {
	if len(r.Plan.Todo) > 0 {
		if err := r.Publisher.Registry.PutData(ctx, oci.RepoNode, oci.Describe(oci.MediaTypeEmpty, oci.Empty)); err != nil {
			return err
		}
	}
	var mu sync.Mutex
	err := ForEach(ctx, r.Plan.Todo, func(ctx context.Context, w *Work) error {
		done, err := r.pushNode(ctx, w)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		r.Plan.Index.Set(w.Name, done)
		r.Result.add(w, done.Generation)
		w.Doc, w.signed = nil, signed{} // those of a fleet are many
		if w.Was != nil && slices.Equal(w.Was.Match.MACs, w.Match.MACs) && slices.Equal(w.Was.Match.UUIDs, w.Match.UUIDs) {
			w.Was = nil // all its tags are in use
		}
		return nil
	})
	r.Result.sort()
	return err
}

func (r *Run) pushNode(ctx context.Context, w *Work) (spec.Published, error) {
	doc, err := w.document()
	if err != nil {
		return spec.Published{}, err
	}
	bundles, err := w.allBundles(&r.Plan.Index.Root)
	if err != nil {
		return spec.Published{}, err
	}
	raw, blobs := oci.OverlayManifest(doc, bundles...)
	for _, b := range blobs[1:] { // the first is empty, and all have it
		if err := r.Publisher.Registry.PutData(ctx, oci.RepoNode, b); err != nil {
			return spec.Published{}, err
		}
	}
	manifest, err := r.Publisher.Registry.PutManifest(ctx, oci.RepoNode, oci.MediaTypeManifest, raw,
		append([]string{w.Name}, trust.AliasTags(w.Match.MACs, w.Match.UUIDs)...)...)
	if err != nil {
		return spec.Published{}, err
	}
	return spec.Published{
		Manifest: manifest, Overlay: w.Overlay, Layer: w.Layer, Generation: w.Generation, Expires: w.Valid.Until.Unix(),
		Match: w.Match, Size: w.Size, Before: w.before(), Holds: w.Holds,
		Foreign: w.Was != nil && w.Was.Foreign && w.Was.Overlay == w.Overlay,
	}, nil
}

// rehearse asks the node's own decision.
func (p *Publisher) rehearse(trusted []string, threshold int, x *spec.FleetIndex, w *Work, c trust.Candidate) error {
	known := trust.Known{Floor: spec.Floor{Epoch: x.Epoch}}
	if p.current != nil {
		known.Reject = p.current.Reject
	}
	a, err := p.AgentRules().Accept(c,
		spec.Bootstrap{Fleet: x.Fleet, Keys: trusted, Threshold: threshold},
		trust.Identity{Node: w.Name, MACs: w.Match.MACs, UUIDs: w.Match.UUIDs}, trust.Clock{RTC: p.Now}, known)
	if err != nil || w.Layer == "" || w.resigned || w.Kept {
		return err
	}
	if err := spec.Knows(&a.Overlay, w.Knows); err != nil {
		return fmt.Errorf("layer %s: %w", w.Layer, err)
	}
	return nil
}
