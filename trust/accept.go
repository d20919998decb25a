// SPDX-License-Identifier: Apache-2.0

package trust

import (
	"time"

	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/trust/refusal"
)

// Refusal is the error for what is not believed. It has RefusalCode and Hint.
type Refusal = refusal.Refusal

// Knowledge is what the node remembers or has learned besides its floor. The
// zero value is that of a new node.
type Knowledge struct {
	Overlay string     // digest of the overlay that was accepted at the floor
	Reject  []string   // digests of overlays and layers that must not run
	Fleet   *Freshness // from fleet:current; nil when it could not be had
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
}

// Accept decides whether the machine id becomes what the candidate says. The
// checks run in order and the first refusal is the answer. It writes nothing.
func Accept(c Candidate, b spec.Bootstrap, id Identity, floor spec.Floor, clock Clock, known Knowledge) (*Accepted, error) {
	return decide(checks, &decision{candidate: c, bootstrap: b, id: id, floor: floor, clock: clock, known: known})
}

// AcceptCore is Accept for a loader, which brings a root to life and leaves its
// sections to the agent in that root, of whatever release that is. Sections that
// this release can read are in the result, too.
func AcceptCore(c Candidate, b spec.Bootstrap, id Identity, floor spec.Floor, clock Clock, known Knowledge) (*Accepted, error) {
	return decide(checks, &decision{candidate: c, bootstrap: b, id: id, floor: floor, clock: clock, known: known, coreOnly: true})
}

// decision is a candidate on its way through the checks. What a check reads was
// put there by an earlier one.
type decision struct {
	candidate Candidate
	bootstrap spec.Bootstrap
	id        Identity
	floor     spec.Floor
	clock     Clock
	known     Knowledge
	coreOnly  bool // the sections are another agent's concern

	digest  string
	said    sign.Predicate // what the signature says
	keys    []string
	overlay spec.Overlay
	now     time.Time
	sure    bool
}

type check struct {
	name string
	ok   func(*decision) error
}

// checks is the whole rule. Nothing of the document is parsed before its
// signature is verified, and nothing of it is used before the last check.
var checks = []check{
	{"size", documentCapped},
	{"signature", enoughKeysSigned},
	{"fleet", fleetIsOurs},
	{"node", nameIsOurs},
	{"machine", hardwareIsOurs},
	{"document", coreParses},
	{"needs", needsAreKnown},
	{"sections", sectionsParse},
	{"agreement", documentAgrees},
	{"names", namesArePlain},
	{"paths", pathsStayInPlace},
	{"epoch", epochIsPermitted},
	{"rollback", notBelowFloor},
	{"replay", sameGenerationSameContent},
	{"fleet minimum", notBelowFleet},
	{"reject list", notRejected},
	{"expiry", notHeldExpired},
}

func decide(checks []check, d *decision) (*Accepted, error) {
	d.digest = oci.Digest(d.candidate.Document)
	for _, check := range checks {
		if err := check.ok(d); err != nil {
			return nil, err
		}
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
	}, nil
}
