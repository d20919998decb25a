// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"strings"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/fleet/memory"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/oci/trust/chain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// putCurrent writes fleet:current. The least generation is that of the node that
// was published the longest ago; Publish with All raises it for everyone. The
// epoch key's permission goes with it: the least epoch is above what nodes know.
func (r *run) putCurrent(ctx context.Context, keys *chain.Chain) (memory.Stamp, error) {
	x := r.c.index
	doc := spec.Fleet{APIVersion: spec.APIVersion, Kind: spec.KindFleet, Fleet: x.Root.Fleet, Reject: r.c.reject, Loaders: r.v.loaders,
		Minimum: spec.Floor{Epoch: x.Root.Epoch, Generation: x.Least()}}
	if keys != nil {
		doc.KeysVersion = keys.Version()
	}
	raw, err := spec.Encode(doc)
	if err != nil {
		return memory.Stamp{}, err
	}
	if len(raw) > oci.MaxFleet {
		return memory.Stamp{}, hint("refresh --allow takes digests off the list; 'caisson publish --all' lets no node run what is older, without one", "fleet:current has %d bytes, nodes read at most %d", len(raw), oci.MaxFleet)
	}
	var also [][]byte
	if x.Root.Grant != nil {
		also = append(also, x.Root.Grant)
	}
	return r.p.putFleet(ctx, x.Root.Fleet, statement{raw, []string{"current"}, oci.TypeFleet, sign.PredicateFleet, freshFor}, also...)
}

// keepsAll refuses to write fleet:current again without what a later release has put into it.
func (v *view) keepsAll() error {
	if v.current == nil {
		return nil
	}
	return keepsAll("fleet:current", v.current.LeftOut)
}

// keepsAll refuses to write a document again without what was left out of it.
func keepsAll(document string, leftOut []string) error {
	if leftOut == nil {
		return nil
	}
	return cli.WithHint(refusal.New(refusal.NeedsAgent, "%s has %s of a later release, which would be lost", document, strings.Join(leftOut, ", ")),
		"publish with the release that wrote it, or a later one")
}

// putIndex writes what has changed of an index: shards, then the root.
func (p *Publisher) putIndex(ctx context.Context, life time.Duration, x *index.Index, tags ...string) (memory.Stamp, error) {
	if err := x.Store(ctx, p.putShard); err != nil {
		return memory.Stamp{}, err
	}
	raw, err := spec.Encode(x.Root)
	if err != nil {
		return memory.Stamp{}, err
	}
	return p.putFleet(ctx, x.Root.Fleet, statement{raw, tags, oci.TypeFleetIndex, sign.PredicateIndex, life})
}

// putReserved says in fleet:index that a generation is given out, over the rows
// before it, or over what [Fleet.adoptMoves] made of them.
func (r *run) putReserved(ctx context.Context, life time.Duration, next spec.FleetIndex) error {
	x := r.v.index.Fork()
	next.Shards, next.Change, next.Reserved = x.Root.Shards, x.Root.Change, true
	x.Root = next
	_, err := r.p.putIndex(ctx, life, x, "index")
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
func (p *Publisher) putFleet(ctx context.Context, fleet string, s statement, also ...[]byte) (memory.Stamp, error) {
	_, err := p.putFleetDocument(ctx, fleet, s, also...)
	return memory.Stamp{Digest: oci.Digest(s.raw), IssuedAt: p.Now}, err
}

// putFleetDocument is putFleet, and returns the digest of the manifest.
func (p *Publisher) putFleetDocument(ctx context.Context, fleet string, s statement, also ...[]byte) (digest string, err error) {
	var bundles [][]byte
	for _, by := range p.Signers {
		b, err := sign.SignFleet(by, oci.Digest(s.raw), s.predicate, sign.FleetPredicate{Fleet: fleet, IssuedAt: p.Now, Expires: p.Now.Add(s.life)})
		if err != nil {
			return "", err
		}
		bundles = append(bundles, b)
	}
	return p.putSigned(ctx, s.kind, s.raw, s.tags, append(bundles, also...)...)
}

// putSigned pushes a document of the whole fleet with its signatures.
func (p *Publisher) putSigned(ctx context.Context, kind string, raw []byte, tags []string, bundles ...[]byte) (digest string, err error) {
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
