// SPDX-License-Identifier: Apache-2.0

// Package trust decides whether an overlay, a fleet:current or a layer may act on
// a machine. It is the gate of the second rule: nothing unsigned acts.
//
// The order of a caller, each step only after the one before:
//
//  1. [Overlay] finds a candidate by the names of the machine. Nothing in a
//     candidate counts yet.
//  2. [Accept] decides. It is pure: the same candidate, bootstrap, machine,
//     floor, clock and knowledge give the same answer, and it writes nothing.
//  3. The caller persists Accepted.Floor, the date where it is credible, and the
//     candidate itself ([Candidate.Save]), fsynced, BEFORE anything of the overlay
//     acts, be it a fetched layer that is stacked or a single sysctl. Else a power
//     cut between acting and remembering lets an old overlay in again.
//  4. [Layer] reads what the overlay names by digest.
//
// A cached candidate ([Load]) goes through Accept again at every boot: a disk is
// outside, too. fleet:current goes the same way with [Current] and [AcceptFleet]
// before the overlay; what it says is part of [Known].
//
// The checks are named lists, see [Rules]; docs/refusals.md names the refusal
// codes. Errors with a code are final for these bytes; oci.ErrNotFound means that
// nothing is published under the name; anything else is a failure of the way,
// worth another try.
//
// It imports spec, oci, oci/sign and the standard library. The agent's stages and
// the publisher, which asks before it pushes, import it.
package trust

import (
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Known holds the node's memory besides its floor, and what it has learned. The zero
// value is that of a new node.
type Known struct {
	Overlay string      // digest of the overlay that was accepted at the floor
	On      string      // digest of the layer on which the overlay is to act; "" is the one that it names
	Reject  []string    // digests of overlays and layers that must not run
	Fleet   *FleetState // from fleet:current; nil when it could not be had
}

// Accepted is an overlay that may act, after the caller has persisted Floor and
// IssuedAt.
type Accepted struct {
	Overlay  spec.Overlay
	Digest   string // of the overlay document
	Floor    spec.Floor
	IssuedAt time.Time
	Expires  time.Time
	Expired  bool     // by the best clock there is; marks, does not stop
	SureTime bool     // the hardware clock counted
	Keys     []string // ids of the keys that signed
	RunsOn   []string // digests of other layers on which what is live of it may act, newest first
	LeftOut  []string // paths of keys of a later release, which do not act; see spec.DecodeKnown
}

// decision is a candidate on its way through the checks. What a check reads was
// put there by an earlier one.
type decision struct {
	candidate Candidate
	bootstrap spec.Bootstrap
	id        Identity
	floor     spec.Floor
	clock     Clock
	known     Known
	coreOnly  bool // the sections are another agent's concern

	digest  string
	said    sign.Predicate // what the signature says
	keys    []string
	overlay spec.Overlay
	whole   bool // all of it is read
	leftOut []string
	now     time.Time
	sure    bool
}

// overlayChecks is the whole rule. No part of the document is parsed before its
// signature is verified, and none of it is used before the last check.
var overlayChecks = check.List[*decision]{
	{Name: "size", OK: documentCapped},
	{Name: "signature", OK: enoughKeysSigned},
	{Name: "fleet", OK: fleetIsOurs},
	{Name: "node", OK: nameIsOurs},
	{Name: "machine", OK: hardwareIsOurs},
	{Name: "document", OK: coreParses},
	{Name: "needs", OK: needsAreKnown},
	{Name: "sections", OK: sectionsParse},
	{Name: "agreement", OK: documentAgrees},
	{Name: "names", OK: namesArePlain},
	{Name: "paths", OK: pathsStayInPlace},
	{Name: "epoch", OK: epochIsPermitted},
	{Name: "rollback", OK: notBelowFloor},
	{Name: "replay", OK: sameGenerationSameContent},
	{Name: "fleet minimum", OK: notBelowFleet},
	{Name: "stacked layer", OK: signedForLayer},
	{Name: "reject list", OK: notRejected},
	{Name: "expiry", OK: notHeldExpired},
	{Name: "fleet expiry", OK: notHeldUnconfirmed},
}

func (r Rules) decide(d *decision) (*Accepted, error) {
	d.digest = oci.Digest(d.candidate.Document)
	if err := r.overlay.Run(d); err != nil {
		return nil, err
	}
	return &Accepted{
		Overlay:  d.overlay,
		Digest:   d.digest,
		Floor:    spec.Floor{Epoch: d.said.Epoch, Generation: d.said.Generation},
		IssuedAt: d.said.IssuedAt,
		Expires:  d.said.Expires,
		Expired:  d.now.After(d.said.Expires),
		SureTime: d.sure,
		Keys:     d.keys,
		RunsOn:   d.said.RunsOn,
		LeftOut:  d.leftOut,
	}, nil
}

// Identity identifies the machine. Node is its name (from the kernel command
// line, the state disk or DHCP), "" when only its hardware is known.
// Addresses and UUIDs are lower case, as in spec.Match.
type Identity struct {
	Node  string
	MACs  []string
	UUIDs []string
}

// Tags are the names under which the overlay may be found, most exact first. A claim that makes no tag, as
// an address that a boot loader did not fill in, is left out: no registry would be asked for the next.
func (id Identity) Tags() []string {
	var tags []string
	if id.Node != "" {
		tags = append(tags, id.Node)
	}
	return slices.DeleteFunc(append(tags, AliasTags(id.MACs, id.UUIDs)...), func(tag string) bool { return !oci.ValidTag(tag) })
}

// AliasTags are the tags that a publisher gives an overlay besides its name.
func AliasTags(macs, uuids []string) []string {
	var tags []string
	for _, uuid := range uuids {
		tags = append(tags, "uuid-"+uuid)
	}
	for _, mac := range macs {
		tags = append(tags, "mac-"+strings.ReplaceAll(mac, ":", ""))
	}
	return tags
}

// is reports whether the machine has one of the identifiers. Without any, the name
// alone binds, so there must be one.
func (id Identity) is(m sign.Match) bool {
	if len(m.MACs) == 0 && len(m.UUIDs) == 0 {
		return id.Node != ""
	}
	has := func(mine []string) func(string) bool {
		return func(s string) bool { return slices.Contains(mine, s) }
	}
	return slices.ContainsFunc(m.MACs, has(id.MACs)) || slices.ContainsFunc(m.UUIDs, has(id.UUIDs))
}

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
	return &Rules{r.overlay.Without(name), r.fleet.Without(name), r.layer.Without(name), r.pairing.Without(name),
		r.rtc.Without(name), r.date.Without(name)}
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
