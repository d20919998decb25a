// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"slices"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec"
)

// Rules are the checks of this package. Programs use [All] of them; tests leave
// one out, to see that an attack then succeeds.
type Rules struct {
	overlay check.List[*decision]
	fleet   check.List[*fleetDecision]
	layer   check.List[*description]
	pairing check.List[pairing]
	rtc     check.List[instant]
	date    check.List[instant]
}

// All returns every check of this package.
func All() *Rules {
	return &Rules{overlayChecks, fleetChecks, layerChecks, pairingChecks, rtcChecks, dateChecks}
}

// Without returns a copy of the rules that lacks the named check.
func (r Rules) Without(name string) *Rules {
	return &Rules{r.overlay.Without(name), r.fleet.Without(name), r.layer.Without(name), r.pairing.Without(name), r.rtc.Without(name), r.date.Without(name)}
}

// Names returns the names of the checks, in the order of the lists.
func (r Rules) Names() []string {
	return slices.Concat(r.overlay.Names(), r.fleet.Names(), r.layer.Names(), r.pairing.Names(), r.rtc.Names(), r.date.Names())
}

// On returns the clock as these rules judge it.
func (r Rules) On(c Clock) Clock {
	c.rtc, c.date = r.rtc, r.date
	return c
}

// Accept decides whether the machine id becomes what the candidate says. The
// checks run in order and the first refusal is the answer. It writes nothing.
func (r Rules) Accept(c Candidate, b spec.Bootstrap, id Identity, floor spec.Floor, clock Clock, known Known) (*Accepted, error) {
	return r.decide(&decision{candidate: c, bootstrap: b, id: id, floor: floor, clock: r.On(clock), known: known})
}

// AcceptCore is Accept for a loader, which brings a root to life and leaves its
// sections to the agent in that root, of whatever release that is. Sections that
// this release can read are in the result, too.
func (r Rules) AcceptCore(c Candidate, b spec.Bootstrap, id Identity, floor spec.Floor, clock Clock, known Known) (*Accepted, error) {
	return r.decide(&decision{candidate: c, bootstrap: b, id: id, floor: floor, clock: r.On(clock), known: known, coreOnly: true})
}

// AcceptFleet decides whether a candidate from [Current] may act. floor is the
// greatest Minimum accepted before, permitted the greatest epoch for which an
// epoch key's permission was verified before. The caller persists the new
// Minimum and IssuedAt before it uses them.
func (r Rules) AcceptFleet(c Candidate, b spec.Bootstrap, floor spec.Floor, permitted uint64, clock Clock) (*FleetState, error) {
	return r.decideFleet(&fleetDecision{candidate: c, bootstrap: b, floor: floor, permitted: permitted, clock: r.On(clock)})
}

// AcceptFleet is [Rules.AcceptFleet] with all checks.
func AcceptFleet(c Candidate, b spec.Bootstrap, floor spec.Floor, permitted uint64, clock Clock) (*FleetState, error) {
	return All().AcceptFleet(c, b, floor, permitted, clock)
}
