// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/bootagent/fetch"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Options of [Publisher.Publish].
type Options struct {
	All      bool          // new generations also for what did not change
	Epoch    uint64        // go to this epoch; 0 keeps the present one
	EpochKey crypto.Signer // gives the word for it
}

// Publish gives the nodes their overlays. Nodes that are published but not among
// them leave the index.
func (p *Publisher) Publish(ctx context.Context, policy Policy, nodes []Node, o Options) (*Result, error) {
	if err := p.checkSigners(policy); err != nil {
		return nil, err
	}
	old, err := p.readIndex(ctx, policy.Operator)
	if errors.Is(err, errUnpublished) {
		old, err = &spec.FleetIndex{Fleet: policy.Fleet}, nil
	}
	if err != nil {
		return nil, err
	}
	if old.Fleet != policy.Fleet {
		return nil, hint("give every fleet a prefix of its own", "the registry holds fleet %q, the site is %q", old.Fleet, policy.Fleet)
	}
	x := &spec.FleetIndex{
		APIVersion: spec.APIVersion, Kind: spec.KindFleetIndex, Fleet: policy.Fleet,
		Epoch: old.Epoch, Generation: old.Generation + 1, Grant: old.Grant,
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
	result := &Result{Fleet: x.Fleet, Epoch: x.Epoch, Generation: x.Generation, Published: []NodeLine{}, Resigned: []NodeLine{}}
	for _, n := range nodes {
		doc, err := spec.Encode(n.Overlay)
		if err != nil {
			return nil, err
		}
		w := work{name: n.Overlay.Node, overlay: n.Overlay, doc: doc, tags: n.Tags, generation: x.Generation, pinned: n.Pinned}
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
		if !slices.ContainsFunc(nodes, func(n Node) bool { return n.Overlay.Node == name }) {
			p.Say("node %s left the site: it keeps its last overlay until that expires", name)
		}
	}
	return result, p.write(ctx, policy, old, x, todo, result)
}

// old says whether a signature has used up two thirds of its life.
func (p *Publisher) old(expires int64, lifetime time.Duration) bool {
	return time.Unix(expires, 0).Sub(p.Now) < lifetime/3
}

func raiseEpoch(x *spec.FleetIndex, policy Policy, o Options) error {
	if o.Epoch <= x.Epoch {
		return hint("an epoch only rises", "the fleet is at epoch %d already", x.Epoch)
	}
	if o.EpochKey == nil {
		return hint("give --epoch-key", "a higher epoch needs the epoch key's word")
	}
	if !slices.ContainsFunc(policy.Epoch, func(k *ecdsa.PublicKey) bool { return k.Equal(o.EpochKey.Public()) }) {
		return hint("nodes believe those that their bootstrap was made with", "the epoch key is none of trust.keys.epoch of the site")
	}
	grant, err := sign.SignEpoch(o.EpochKey, sign.EpochPredicate{Fleet: x.Fleet, Epoch: o.Epoch})
	x.Epoch, x.Grant = o.Epoch, grant
	return err
}

// work is one node that gets a new signature.
type work struct {
	name       string
	overlay    *spec.Overlay
	doc        []byte
	tags       []string
	generation uint64
	resigned   bool
	pinned     bool

	said    sign.Predicate
	bundles [][]byte
}

// write signs and pushes, in the order that the package comment promises.
func (p *Publisher) write(ctx context.Context, policy Policy, old, x *spec.FleetIndex, todo []work, result *Result) (err error) {
	if p.fresh, err = p.current(ctx, policy); err != nil && !errors.Is(err, oci.ErrNotFound) {
		return fmt.Errorf("fleet:current: %w", err)
	}
	if err := p.signNodes(ctx, policy, x, todo); err != nil {
		return err
	}
	flush, err := p.Registry.Batch()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, flush()) }()
	fresh := func(w work) bool { return !w.resigned }
	if slices.ContainsFunc(todo, fresh) {
		reserved := *x
		reserved.Nodes = old.Nodes
		if err := p.putFleet(ctx, &reserved, "index", oci.TypeFleetIndex, sign.PredicateIndex, policy.Lifetime); err != nil {
			return err
		}
	} else {
		x.Generation, result.Generation = max(old.Generation, 1), max(old.Generation, 1)
	}
	if err := p.pushNodes(ctx, x, todo, result); err != nil {
		return err
	}
	if err := p.putFleet(ctx, x, "index", oci.TypeFleetIndex, sign.PredicateIndex, policy.Lifetime); err != nil {
		return err
	}
	return p.putCurrent(ctx, policy, x, nil)
}

// workers is how many nodes are in hand at once; a registry on the same machine
// gains nothing beyond it.
const workers = 8

// each does f for every piece of work, several at once. The first error ends it.
func each(ctx context.Context, todo []work, f func(context.Context, *work) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var group sync.WaitGroup
	queue := make(chan *work)
	for range workers {
		group.Go(func() {
			for w := range queue {
				if err := f(ctx, w); err != nil {
					cancel(fmt.Errorf("node %s: %w", w.name, err))
				}
			}
		})
	}
	for i := range todo {
		if ctx.Err() != nil {
			break
		}
		queue <- &todo[i]
	}
	close(queue)
	group.Wait()
	return context.Cause(ctx)
}

// signNodes signs all and asks the node's own decision about each, before the
// first one is pushed.
func (p *Publisher) signNodes(ctx context.Context, policy Policy, x *spec.FleetIndex, todo []work) error {
	trusted := pems(policy.Operator)
	return each(ctx, todo, func(_ context.Context, w *work) error {
		w.said = sign.Predicate{
			Fleet: x.Fleet, Node: w.name, Match: sign.Match(w.overlay.Match), Layer: w.overlay.Layer,
			Epoch: x.Epoch, Generation: w.generation, IssuedAt: p.Now, Expires: p.Now.Add(policy.Lifetime),
		}
		for _, s := range p.Signers {
			b, err := sign.SignOverlay(s, oci.Digest(w.doc), w.said)
			if err != nil {
				return err
			}
			w.bundles = append(w.bundles, b)
		}
		if x.Grant != nil {
			w.bundles = append(w.bundles, x.Grant)
		}
		if err := p.rehearse(trusted, policy.Threshold, x, w); err != nil {
			return fmt.Errorf("the node would refuse this: %w", err)
		}
		return nil
	})
}

func (p *Publisher) pushNodes(ctx context.Context, x *spec.FleetIndex, todo []work, result *Result) error {
	var mu sync.Mutex
	err := each(ctx, todo, func(ctx context.Context, w *work) error {
		done, err := p.pushNode(ctx, w)
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		x.Nodes[w.name] = done
		line := NodeLine{w.name, done.Overlay, done.Layer, done.Generation}
		if w.resigned {
			result.Resigned = append(result.Resigned, line)
		} else {
			result.Published = append(result.Published, line)
		}
		return nil
	})
	byName := func(a, b NodeLine) int { return strings.Compare(a.Node, b.Node) }
	slices.SortFunc(result.Published, byName)
	slices.SortFunc(result.Resigned, byName)
	return err
}

func (p *Publisher) pushNode(ctx context.Context, w *work) (spec.Published, error) {
	raw, blobs := oci.OverlayManifest(w.doc, w.bundles...)
	for _, b := range blobs {
		if err := p.Registry.PutData(ctx, oci.RepoNode, b); err != nil {
			return spec.Published{}, err
		}
	}
	manifest, err := p.Registry.PutManifest(ctx, oci.RepoNode, oci.MediaTypeManifest, raw, append([]string{w.name}, w.tags...)...)
	return spec.Published{
		Manifest: manifest, Overlay: oci.Digest(w.doc), Layer: w.overlay.Layer,
		Generation: w.generation, Expires: w.said.Expires.Unix(), Pinned: w.pinned,
	}, err
}

// rehearse asks the node's own decision.
func (p *Publisher) rehearse(trusted []string, threshold int, x *spec.FleetIndex, w *work) error {
	known := fetch.Knowledge{}
	if p.fresh != nil {
		known.Reject = p.fresh.Reject
	}
	_, err := fetch.Accept(
		fetch.Candidate{Document: w.doc, Bundles: w.bundles},
		spec.Bootstrap{Fleet: x.Fleet, Keys: trusted, Threshold: threshold},
		fetch.Identity{Node: w.name, MACs: w.overlay.Match.MACs, UUIDs: w.overlay.Match.UUIDs},
		spec.Floor{Epoch: x.Epoch}, fetch.Clock{RTC: p.Now}, known)
	return err
}

// putCurrent writes fleet:current. The least generation is that of the node that
// was published the longest ago; Publish with All raises it for everyone.
func (p *Publisher) putCurrent(ctx context.Context, policy Policy, x *spec.FleetIndex, reject []string) error {
	doc := spec.Fleet{APIVersion: spec.APIVersion, Kind: spec.KindFleet, Fleet: x.Fleet, Minimum: spec.Floor{Epoch: x.Epoch}, Reject: reject}
	if reject == nil && p.fresh != nil {
		doc.Reject = p.fresh.Reject
	}
	for _, n := range x.Nodes {
		if doc.Minimum.Generation == 0 || n.Generation < doc.Minimum.Generation {
			doc.Minimum.Generation = n.Generation
		}
	}
	return p.putFleet(ctx, doc, "current", oci.TypeFleet, sign.PredicateFleet, freshFor)
}

// current reads fleet:current the way a node does.
func (p *Publisher) current(ctx context.Context, policy Policy) (*fetch.Freshness, error) {
	c, err := fetch.Current(ctx, p.Registry.Source(), "")
	if err != nil {
		return nil, err
	}
	return fetch.AcceptFleet(c, spec.Bootstrap{Fleet: policy.Fleet, Keys: pems(policy.Operator), Threshold: policy.Threshold}, spec.Floor{}, fetch.Clock{RTC: p.Now})
}

func (p *Publisher) putFleet(ctx context.Context, doc any, tag, kind, predicate string, life time.Duration) error {
	raw, err := spec.Encode(doc)
	if err != nil {
		return err
	}
	if tag == "current" && len(raw) > oci.MaxFleet {
		return hint("refresh --allow takes digests off the list", "fleet:current has %d bytes, nodes read at most %d", len(raw), oci.MaxFleet)
	}
	fleet := fleetOf(doc)
	var bundles [][]byte
	for _, s := range p.Signers {
		b, err := sign.SignFleet(s, oci.Digest(raw), predicate, sign.FleetPredicate{Fleet: fleet, IssuedAt: p.Now, Expires: p.Now.Add(life)})
		if err != nil {
			return err
		}
		bundles = append(bundles, b)
	}
	manifest, blobs := oci.DocumentManifest(kind, raw, bundles...)
	for _, b := range blobs {
		if err := p.Registry.PutData(ctx, oci.RepoFleet, b); err != nil {
			return err
		}
	}
	_, err = p.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, manifest, tag)
	return err
}

func fleetOf(doc any) string {
	switch d := doc.(type) {
	case *spec.FleetIndex:
		return d.Fleet
	case spec.Fleet:
		return d.Fleet
	}
	return ""
}

func pems(keys []*ecdsa.PublicKey) []string {
	var out []string
	for _, k := range keys {
		out = append(out, string(sign.MarshalPublic(k)))
	}
	return out
}
