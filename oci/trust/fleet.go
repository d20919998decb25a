// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"cmp"
	"fmt"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// FleetState holds the content of an accepted fleet:current.
type FleetState struct {
	Minimum  spec.Floor
	Reject   []string
	IssuedAt time.Time
	Expires  time.Time
	Expired  bool   // somebody keeps newer ones from this node, or nobody refreshes
	Keys     uint64 // newest version of fleet:keys, 0 where the fleet has none
	Credible bool   // IssuedAt may be remembered, see [Clock.Credible]
	Loaders  []spec.Loader
	LeftOut  []string // paths of keys of a later release, which do not act; see spec.DecodeKnown
}

// Unconfirmed returns why nothing confirms that what a node finds is the newest,
// or "". A nil state is one that could not be had.
func (f *FleetState) Unconfirmed() string {
	switch {
	case f == nil:
		return "fleet:current is missing"
	case f.Expired:
		return fmt.Sprintf("fleet:current expired at %s", f.Expires.UTC().Format(time.RFC3339))
	case !f.Credible:
		return fmt.Sprintf("fleet:current is dated %s", f.IssuedAt.UTC().Format(time.RFC3339))
	}
	return ""
}

// Compare is above 0 where f is newer than o, both accepted: by what each publish raises, and
// then by a date that is credible.
func (f *FleetState) Compare(o *FleetState) int {
	credible := 0
	if f.Credible != o.Credible {
		if credible = -1; f.Credible {
			credible = 1
		}
	}
	return cmp.Or(cmp.Compare(f.Minimum.Epoch, o.Minimum.Epoch), cmp.Compare(f.Minimum.Generation, o.Minimum.Generation),
		credible, f.IssuedAt.Compare(o.IssuedAt))
}

// fleetDecision is a candidate for fleet:current on its way through the checks.
type fleetDecision struct {
	candidate Candidate
	bootstrap spec.Bootstrap
	floor     spec.Floor
	permitted uint64 // epoch
	clock     Clock

	said    sign.FleetPredicate
	doc     spec.Fleet
	leftOut []string
}

var fleetChecks = check.List[*fleetDecision]{
	{Name: "fleet: size", OK: fleetCapped},
	{Name: "fleet: signature", OK: fleetIsSigned},
	{Name: "fleet: fleet", OK: fleetDocumentIsOurs},
	{Name: "fleet: document", OK: fleetDocumentParses},
	{Name: "fleet: needs", OK: fleetNeedsAreKnown},
	{Name: "fleet: agreement", OK: fleetDocumentAgrees},
	{Name: "fleet: numbers", OK: fleetNumbersAreBounded},
	{Name: "fleet: epoch", OK: fleetEpochIsPermitted},
	{Name: "fleet: rollback", OK: fleetNotBelowFloor},
}

func (r Rules) decideFleet(d *fleetDecision) (*FleetState, error) {
	if err := r.fleet.Run(d); err != nil {
		return nil, err
	}
	clock := d.clock
	if d.doc.Minimum.Epoch > d.floor.Epoch {
		clock.Newest = time.Time{} // a raised epoch ends what was said before it
	}
	now, _ := clock.Now(d.said.IssuedAt)
	return &FleetState{
		Minimum: d.doc.Minimum, Reject: d.doc.Reject, IssuedAt: d.said.IssuedAt, Expires: d.said.Expires,
		Expired: now.After(d.said.Expires), Credible: clock.Credible(d.said.IssuedAt), LeftOut: d.leftOut,
		Keys: d.doc.KeysVersion, Loaders: d.doc.Loaders,
	}, nil
}

func fleetCapped(d *fleetDecision) error {
	return refusal.If(len(d.candidate.Document) > oci.MaxFleet, refusal.Oversize, "fleet document of %d bytes", len(d.candidate.Document))
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

func fleetDocumentIsOurs(d *fleetDecision) error { return isFleet(d.said.Fleet, d.bootstrap.Fleet) }

func fleetDocumentParses(d *fleetDecision) (err error) {
	if d.leftOut, err = spec.DecodeKnown(d.candidate.Document, &d.doc); err != nil {
		return refusal.New(refusal.Overlay, "%w", err)
	}
	return refusal.If(d.doc.APIVersion != spec.APIVersion || d.doc.Kind != spec.KindFleet, refusal.Overlay, "the document is %.40q %.40q",
		d.doc.APIVersion, d.doc.Kind)
}

// fleetNeedsAreKnown: no need has a name yet; a later release may add some.
func fleetNeedsAreKnown(d *fleetDecision) error {
	return refusal.If(len(d.doc.Needs) > 0, refusal.NeedsAgent, "fleet:current needs %.200q", d.doc.Needs)
}

func fleetDocumentAgrees(d *fleetDecision) error {
	return refusal.If(d.doc.Fleet != d.said.Fleet, refusal.Contradiction, "the document is for fleet %q, its statement for %q", d.doc.Fleet,
		d.said.Fleet)
}

// fleetNumbersAreBounded: a number that no later document can reach would be
// remembered for ever.
func fleetNumbersAreBounded(d *fleetDecision) error {
	m := d.doc.Minimum
	return refusal.If(m.Epoch > sign.MaxNumber || m.Generation > sign.MaxNumber || d.doc.KeysVersion > sign.MaxNumber, refusal.BadNumber,
		"minimum epoch %d, generation %d, keys %d", m.Epoch, m.Generation, d.doc.KeysVersion)
}

// fleetEpochIsPermitted holds fleet:current to the rule of overlays: an operator's
// key does not raise the epoch.
func fleetEpochIsPermitted(d *fleetDecision) error {
	if d.doc.Minimum.Epoch <= d.permitted {
		return nil
	}
	keys, err := sign.ParsePublics(d.bootstrap.EpochKeys)
	if err != nil {
		return err
	}
	err = sign.VerifyEpoch(d.candidate.Bundles, keys, d.bootstrap.Fleet, d.doc.Minimum.Epoch)
	return refusal.If(err != nil, refusal.Epoch, "minimum epoch %d without permission: %w", d.doc.Minimum.Epoch, err)
}

func fleetNotBelowFloor(d *fleetDecision) error {
	return refusal.If(d.doc.Minimum.Compare(d.floor) < 0, refusal.Rollback, "minimum %d/%d, this node knows %d/%d", d.doc.Minimum.Epoch,
		d.doc.Minimum.Generation, d.floor.Epoch, d.floor.Generation)
}
