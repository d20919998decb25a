// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust/refusal"
)

// FleetState is what an accepted fleet:current says.
type FleetState struct {
	Minimum  spec.Floor
	Reject   []string
	IssuedAt time.Time
	Expires  time.Time
	Expired  bool // somebody keeps newer ones from this node, or nobody refreshes
}

// AcceptFleet decides whether a candidate from [Current] may act. floor is
// the greatest Minimum accepted before; the caller persists the new one and
// IssuedAt before it uses them.
func AcceptFleet(c Candidate, b spec.Bootstrap, floor spec.Floor, clock Clock) (*FleetState, error) {
	return decideFleet(fleetChecks, &fleetDecision{candidate: c, bootstrap: b, floor: floor, clock: clock})
}

// fleetDecision is a candidate for fleet:current on its way through the checks.
type fleetDecision struct {
	candidate Candidate
	bootstrap spec.Bootstrap
	floor     spec.Floor
	clock     Clock

	said sign.FleetPredicate
	doc  spec.Fleet
}

var fleetChecks = check.List[*fleetDecision]{
	{Name: "fleet: size", OK: fleetCapped},
	{Name: "fleet: signature", OK: fleetIsSigned},
	{Name: "fleet: fleet", OK: fleetDocumentIsOurs},
	{Name: "fleet: document", OK: fleetDocumentParses},
	{Name: "fleet: needs", OK: fleetNeedsAreKnown},
	{Name: "fleet: agreement", OK: fleetDocumentAgrees},
	{Name: "fleet: rollback", OK: fleetNotBelowFloor},
}

func decideFleet(checks check.List[*fleetDecision], d *fleetDecision) (*FleetState, error) {
	if err := checks.Run(d); err != nil {
		return nil, err
	}
	now, _ := d.clock.Now(d.said.IssuedAt)
	return &FleetState{d.doc.Minimum, d.doc.Reject, d.said.IssuedAt, d.said.Expires, now.After(d.said.Expires)}, nil
}

func fleetCapped(d *fleetDecision) error {
	if n := len(d.candidate.Document); n > oci.MaxFleet {
		return refusal.New(refusal.Oversize, "fleet document of %d bytes", n)
	}
	return nil
}

func fleetIsSigned(d *fleetDecision) error {
	keys, err := sign.ParsePublics(d.bootstrap.Keys)
	if err != nil {
		return err
	}
	v, err := sign.VerifyFleet(d.candidate.Bundles, keys, d.bootstrap.Threshold, oci.Digest(d.candidate.Document), sign.PredicateFleet)
	if err == nil {
		d.said = v.Predicate
	}
	return err
}

func fleetDocumentIsOurs(d *fleetDecision) error {
	if d.said.Fleet != d.bootstrap.Fleet {
		return refusal.New(refusal.WrongFleet, "signed for fleet %q, this is %q", d.said.Fleet, d.bootstrap.Fleet)
	}
	return nil
}

func fleetDocumentParses(d *fleetDecision) error {
	if _, err := spec.DecodeKnown(d.candidate.Document, &d.doc); err != nil {
		return refusal.New(refusal.Overlay, "%w", err)
	}
	if d.doc.APIVersion != spec.APIVersion || d.doc.Kind != spec.KindFleet {
		return refusal.New(refusal.Overlay, "the document is %.40q %.40q", d.doc.APIVersion, d.doc.Kind)
	}
	return nil
}

// fleetNeedsAreKnown: no need has a name yet; a later release may add some.
func fleetNeedsAreKnown(d *fleetDecision) error {
	if len(d.doc.Needs) > 0 {
		return refusal.New(refusal.NeedsAgent, "fleet:current needs %.200q", d.doc.Needs)
	}
	return nil
}

func fleetDocumentAgrees(d *fleetDecision) error {
	if d.doc.Fleet != d.said.Fleet {
		return refusal.New(refusal.Contradiction, "the document is of fleet %q, its statement of %q", d.doc.Fleet, d.said.Fleet)
	}
	return nil
}

func fleetNotBelowFloor(d *fleetDecision) error {
	if less(d.doc.Minimum, d.floor) {
		return refusal.New(refusal.Rollback, "minimum %d/%d, this node knows %d/%d",
			d.doc.Minimum.Epoch, d.doc.Minimum.Generation, d.floor.Epoch, d.floor.Generation)
	}
	return nil
}

func less(a, b spec.Floor) bool {
	return a.Epoch < b.Epoch || a.Epoch == b.Epoch && a.Generation < b.Generation
}
