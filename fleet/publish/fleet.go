// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// putCurrent writes fleet:current. The least generation is that of the node that
// was published the longest ago; Publish with All raises it for everyone. The
// epoch key's permission goes with it: the least epoch is above what nodes know.
func (r *Run) putCurrent(ctx context.Context, keys *chain.Chain) (published.Stamp, error) {
	x := r.Plan.Index
	doc := spec.Fleet{APIVersion: spec.APIVersion, Kind: spec.KindFleet, Fleet: x.Root.Fleet, Reject: r.Plan.reject, Loaders: r.State.Loaders,
		Minimum: spec.Floor{Epoch: x.Root.Epoch, Generation: x.Least()}}
	if keys != nil {
		doc.KeysVersion = keys.Version()
	}
	raw, err := spec.Encode(doc)
	if err != nil {
		return published.Stamp{}, err
	}
	if len(raw) > oci.MaxFleet {
		return published.Stamp{}, cli.Hint("refresh --allow takes digests off the list; 'caisson publish --all' lets no node run "+
			"what is older, without one", "fleet:current has %d bytes, nodes read at most %d", len(raw), oci.MaxFleet)
	}
	var also [][]byte
	if x.Root.Grant != nil {
		also = append(also, x.Root.Grant)
	}
	return r.Publisher.putFleet(ctx, x.Root.Fleet, statement{raw, []string{"current"}, oci.TypeFleet, sign.PredicateFleet, freshFor}, also...)
}

// keepsAll refuses to write fleet:current again without what a later release has put into it.
func (r *Run) keepsAll() error {
	if r.State.Current == nil {
		return nil
	}
	return KeepsAll("fleet:current", r.State.Current.LeftOut)
}

// KeepsAll refuses to write a document again without what was left out of it.
func KeepsAll(document string, leftOut []string) error {
	if leftOut == nil {
		return nil
	}
	return cli.WithHint(refusal.New(refusal.NeedsAgent, "%s has %s of a later release, which would be lost", document,
		strings.Join(leftOut, ", ")),
		"publish with the release that wrote it, or a later one")
}

// putIndex writes what has changed of an index: shards, then the root. A root that rests on what is
// this publisher's own is remembered before it is there.
func (r *Run) putIndex(ctx context.Context, life time.Duration, x *index.Index, tags ...string) (published.Stamp, error) {
	p := r.Publisher
	if err := x.Store(ctx, p.putShard); err != nil {
		return published.Stamp{}, err
	}
	raw, err := spec.Encode(x.Root)
	if err != nil {
		return published.Stamp{}, err
	}
	if r.Own != nil {
		place := p.Registry.Ref().String()
		seen, _ := p.Memory.At(place)
		r.Own.Next = append(slices.Clone(r.Own.Next), oci.Digest(raw))
		seen.Own = *r.Own
		if err := p.Memory.Set(place, seen); err != nil {
			return published.Stamp{}, err
		}
	}
	return p.putFleet(ctx, x.Root.Fleet, statement{raw, tags, oci.TypeFleetIndex, sign.PredicateIndex, life})
}

// putReserved says in fleet:index that a generation is given out, over the rows
// before it, or over what [Run.adoptMoves] made of them.
func (r *Run) putReserved(ctx context.Context, life time.Duration, next spec.FleetIndex) error {
	x := r.State.Index.Fork()
	next.Shards, next.Change, next.Reserved = x.Root.Shards, x.Root.Change, true
	x.Root = next
	_, err := r.putIndex(ctx, life, x, "index")
	return err
}

// statement is a document of the whole fleet that is to be signed.
type statement struct {
	raw             []byte
	tags            []string
	kind, predicate string
	life            time.Duration // of the signatures
}

// putFleet signs and pushes a document of the whole fleet.
func (p *Publisher) putFleet(ctx context.Context, fleet string, s statement, also ...[]byte) (published.Stamp, error) {
	_, err := p.putFleetDocument(ctx, fleet, s, also...)
	return published.Stamp{Digest: oci.Digest(s.raw), IssuedAt: p.Now}, err
}

// putFleetDocument is putFleet, and returns the digest of the manifest.
func (p *Publisher) putFleetDocument(ctx context.Context, fleet string, s statement, also ...[]byte) (digest string, err error) {
	said := sign.FleetPredicate{Fleet: fleet, IssuedAt: p.Now, Expires: p.Now.Add(s.life)}
	bundles, err := sign.Each(p.Signers, func(by crypto.Signer) ([]byte, error) {
		return sign.SignFleet(by, oci.Digest(s.raw), s.predicate, said)
	})
	if err != nil {
		return "", err
	}
	return p.PutSigned(ctx, s.kind, s.raw, s.tags, append(bundles, also...)...)
}

// PutSigned pushes a document of the whole fleet with its signatures.
func (p *Publisher) PutSigned(ctx context.Context, kind string, raw []byte, tags []string, bundles ...[]byte) (digest string, err error) {
	manifest, blobs := oci.DocumentManifest(kind, raw, bundles...)
	for _, b := range blobs {
		if err := p.Registry.PutData(ctx, oci.RepoFleet, b); err != nil {
			return "", err
		}
	}
	if err := p.lease.CheckOwned(ctx); err != nil {
		return "", err
	}
	return p.Registry.PutManifest(ctx, oci.RepoFleet, oci.MediaTypeManifest, manifest, tags...)
}

// setLoader names a loader in fleet:current, in place of the one of its architecture. Nodes
// never go back to a lower number, so neither does a publisher.
func (r *Run) setLoader(l spec.Loader) error {
	list := slices.Clone(r.State.Loaders)
	at, there := slices.BinarySearchFunc(list, l.Arch, func(l spec.Loader, arch string) int { return strings.Compare(l.Arch, arch) })
	switch {
	case there && list[at].Number >= l.Number && list[at] != l:
		return cli.Hint("run this again", "fleet:current has loader %d of %s, and this is %d", list[at].Number, l.Arch, l.Number)
	case there:
		list[at] = l
	default:
		list = slices.Insert(list, at, l)
	}
	r.State.Loaders = list
	return nil
}

// putKeys pushes the versions that the registry lacks, oldest first: a node finds each by the
// one before. Of a registry that has the newest it asks nothing else.
func (p *Publisher) putKeys(ctx context.Context, c *chain.Chain) error {
	if c == nil {
		return nil
	}
	links := c.Links()
	var missing []chain.Link
	for _, l := range slices.Backward(links) {
		_, err := p.Registry.Source().Manifest(ctx, oci.RepoFleet, trust.KeysTag(l.Keys.Version), "")
		if err == nil {
			break
		}
		if !errors.Is(err, oci.ErrNotFound) {
			return err
		}
		missing = append(missing, l)
	}
	for _, l := range slices.Backward(missing) {
		if _, err := p.PutSigned(ctx, oci.TypeKeys, l.Candidate.Document, []string{trust.KeysTag(l.Keys.Version)},
			l.Candidate.Bundles...); err != nil {
			return err
		}
	}
	return nil
}
