// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"context"
	"crypto/ecdsa"
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust"
)

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
	var grants [][]byte
	if x.Grant != nil { // nodes raise their epoch for the epoch key's permission only
		grants = append(grants, x.Grant)
	}
	return p.putFleet(ctx, doc, "current", oci.TypeFleet, sign.PredicateFleet, freshFor, grants...)
}

// current reads fleet:current the way a node does. epoch is that of the index,
// which holds the permission for it.
func (p *Publisher) current(ctx context.Context, policy Policy, epoch uint64) (*trust.FleetState, error) {
	c, err := trust.Current(ctx, p.Registry.Source(), "")
	if err != nil {
		return nil, err
	}
	return trust.AcceptFleet(c, spec.Bootstrap{Fleet: policy.Fleet, Keys: pems(policy.Operator), Threshold: policy.Threshold}, spec.Floor{}, epoch, trust.Clock{RTC: p.Now})
}

func (p *Publisher) putFleet(ctx context.Context, doc any, tag, kind, predicate string, life time.Duration, grants ...[]byte) error {
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
	manifest, blobs := oci.DocumentManifest(kind, raw, append(bundles, grants...)...)
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
