// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/refusal"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Freshness is what fleet:current says, believed.
type Freshness struct {
	Minimum  spec.Floor
	Reject   []string
	IssuedAt time.Time
	Expires  time.Time
	Expired  bool // somebody keeps newer ones from this node, or nobody refreshes
}

// AcceptFleet decides whether a candidate from [Current] is believed. floor is
// the greatest Minimum accepted before; the caller persists the new one and
// IssuedAt before it uses them.
func AcceptFleet(c Candidate, b spec.Bootstrap, floor spec.Floor, clock Clock) (*Freshness, error) {
	if n := len(c.Document); n > oci.MaxFleet {
		return nil, refusal.New(refusal.Oversize, "fleet document of %d bytes", n)
	}
	keys, err := sign.ParsePublics(b.Keys)
	if err != nil {
		return nil, err
	}
	v, err := sign.VerifyFleet(c.Bundles, keys, b.Threshold, oci.Digest(c.Document), sign.PredicateFleet)
	if err != nil {
		return nil, err
	}
	var doc spec.Fleet
	if err := spec.Decode(c.Document, &doc); err != nil {
		return nil, refusal.New(refusal.Overlay, "%w", err)
	}
	said := v.Predicate
	now, _ := clock.Now(said.IssuedAt)
	switch {
	case doc.APIVersion != spec.APIVersion || doc.Kind != spec.KindFleet:
		return nil, refusal.New(refusal.Overlay, "the document is %.40q %.40q", doc.APIVersion, doc.Kind)
	case said.Fleet != b.Fleet:
		return nil, refusal.New(refusal.WrongFleet, "signed for fleet %q, this is %q", said.Fleet, b.Fleet)
	case doc.Fleet != said.Fleet:
		return nil, refusal.New(refusal.Contradiction, "the document is of fleet %q, its statement of %q", doc.Fleet, said.Fleet)
	case less(doc.Minimum, floor):
		return nil, refusal.New(refusal.Rollback, "minimum %d/%d, this node knows %d/%d",
			doc.Minimum.Epoch, doc.Minimum.Generation, floor.Epoch, floor.Generation)
	}
	return &Freshness{doc.Minimum, doc.Reject, said.IssuedAt, said.Expires, now.After(said.Expires)}, nil
}

func less(a, b spec.Floor) bool {
	return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Generation < b.Generation
}
