// SPDX-License-Identifier: Apache-2.0

// Package trust decides whether an overlay, a fleet:current or a layer may act on
// a machine. It is the gate of the second rule: nothing unsigned acts.
//
// The order of a caller, each step only after the one before:
//
//  1. [Overlay] finds a candidate by the names of the machine. Nothing in a
//     candidate counts yet.
//  2. [Accept] decides. It is pure: the same candidate, bootstrap, machine,
//     clock and knowledge give the same answer, and it writes nothing.
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
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Known holds the node's memory, and what it has learned. The zero value is that of a
// new node.
type Known struct {
	Floor   spec.Floor  // the highest that was accepted: what is below it is refused
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
func (r Rules) Accept(c Candidate, b spec.Bootstrap, id Identity, clock Clock, known Known) (*Accepted, error) {
	return r.decide(&decision{candidate: c, bootstrap: b, id: id, clock: r.On(clock), known: known})
}

// AcceptCore is Accept for a loader, which brings a root to life and leaves its
// sections to the agent in that root, of whatever release that is. Sections that
// this release can read are in the result, too.
func (r Rules) AcceptCore(c Candidate, b spec.Bootstrap, id Identity, clock Clock, known Known) (*Accepted, error) {
	return r.decide(&decision{candidate: c, bootstrap: b, id: id, clock: r.On(clock), known: known, coreOnly: true})
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

// Candidate holds the documents found under a name. None of it counts before [Accept].
type Candidate struct {
	ETag        string // to ask with the next time
	NotModified bool   // nothing newer than the etag that was sent; the rest is empty
	Manifest    string // digest of the manifest
	Document    []byte // the overlay, or the document of fleet:current
	Bundles     [][]byte
}

// Overlay asks one place for the node's overlay under each tag in turn, see [Identity.Tags],
// and returns the first that exists. The etag is that of the overlay in effect.
func Overlay(ctx context.Context, src oci.Source, tags []string, etag string) (Candidate, error) {
	if len(tags) == 0 {
		return Candidate{}, errors.New("the machine has no name, MAC address or UUID to ask with")
	}
	for _, tag := range tags {
		c, err := document(ctx, src, oci.Artifact{Repo: oci.RepoNode, Type: oci.TypeOverlay, Limit: oci.MaxOverlay}, tag, etag)
		if !errors.Is(err, oci.ErrNotFound) {
			return c, err
		}
	}
	return Candidate{}, unpublishedError(tags)
}

// unpublishedError is returned where a machine has no overlay under any of its names.
type unpublishedError []string

func (e unpublishedError) Error() string {
	return fmt.Sprintf("no overlay for %s: %v", strings.Join(e, ", "), oci.ErrNotFound)
}
func (e unpublishedError) Unwrap() error { return oci.ErrNotFound }
func (e unpublishedError) Hint() string {
	return "one of these is the node's name in the site, or in its match; and is it published?"
}

// Current asks one place for fleet:current.
func Current(ctx context.Context, src oci.Source, etag string) (Candidate, error) {
	return document(ctx, src, oci.Artifact{Repo: oci.RepoFleet, Type: oci.TypeFleet, Limit: oci.MaxFleet}, "current", etag)
}

// Keys asks the places of src for a version of fleet:keys that accept takes.
func Keys[A any](ctx context.Context, src oci.Source, version uint64, accept func(Candidate) (A, error)) (A, error) {
	return oci.Accepted(ctx, src, oci.AtOnce, func(ctx context.Context, place oci.Source) (Candidate, error) {
		return document(ctx, place, oci.Artifact{Repo: oci.RepoFleet, Type: oci.TypeKeys, Limit: oci.MaxKeys}, KeysTag(version), "")
	}, accept)
}

// KeysTag is the tag of a version of fleet:keys.
func KeysTag(version uint64) string { return fmt.Sprintf("keys-%d", version) }

// Rescue asks the places of src for what lets an operator into a node, under each of its
// names, until offer takes one.
func Rescue(ctx context.Context, src oci.Source, names []string, offer func(Candidate) error) error {
	type found struct {
		list []Candidate
		errs []error
	}
	_, err := oci.Accepted(ctx, src, oci.AtOnce, func(ctx context.Context, place oci.Source) (f found, _ error) {
		for _, name := range names {
			c, err := document(ctx, place, oci.Artifact{Repo: oci.RepoRescue, Type: oci.TypeRescue, Limit: oci.MaxRescue}, name, "")
			if err == nil {
				f.list = append(f.list, c)
			}
			f.errs = append(f.errs, err)
		}
		return f, nil
	}, func(f found) (struct{}, error) {
		for _, c := range f.list {
			err := offer(c)
			if err == nil {
				return struct{}{}, nil
			}
			f.errs = append(f.errs, err)
		}
		return struct{}{}, errors.Join(f.errs...)
	})
	return err
}

func document(ctx context.Context, src oci.Source, of oci.Artifact, tag, etag string) (Candidate, error) {
	resp, err := src.Manifest(ctx, of.Repo, tag, etag)
	if err != nil {
		return Candidate{}, err
	}
	c := Candidate{ETag: resp.ETag, NotModified: resp.NotModified, Manifest: resp.Digest}
	if c.NotModified {
		return c, nil
	}
	c.Document, c.Bundles, err = oci.ReadDocument(ctx, src, resp, of)
	if err != nil {
		return Candidate{}, fmt.Errorf("%s:%s: %w", of.Repo, tag, err)
	}
	return c, nil
}

// Save encodes a candidate with everything in it, for the state directory. [Load]
// gives it back.
func (c Candidate) Save() []byte { return saved(oci.TypeOverlay, c) }

// Load reads what [Candidate.Save] wrote. The bytes come from a disk that others
// may have had in hand, so it takes as little for granted as [Overlay] does.
func Load(data []byte) (Candidate, error) { return load(data, oci.TypeOverlay, oci.MaxOverlay) }

// SaveFleet is [Candidate.Save] for fleet:current.
func (c Candidate) SaveFleet() []byte { return saved(oci.TypeFleet, c) }

// LoadFleet reads what [Candidate.SaveFleet] wrote.
func LoadFleet(data []byte) (Candidate, error) { return load(data, oci.TypeFleet, oci.MaxFleet) }

// SaveKeys is [Candidate.Save] for a version of fleet:keys.
func (c Candidate) SaveKeys() []byte { return saved(oci.TypeKeys, c) }

// LoadKeys reads what [Candidate.SaveKeys] wrote.
func LoadKeys(data []byte) (Candidate, error) { return load(data, oci.TypeKeys, oci.MaxKeys) }

// SaveRescue is [Candidate.Save] for what lets an operator into a node, as a medium carries it.
func (c Candidate) SaveRescue() []byte { return saved(oci.TypeRescue, c) }

// LoadRescue reads what [Candidate.SaveRescue] wrote.
func LoadRescue(data []byte) (Candidate, error) { return load(data, oci.TypeRescue, oci.MaxRescue) }

// MaxSaved is the most that a saved candidate takes: base64 of all that a document and
// its bundles may have, and the manifest around them. One of a registry has less, since
// there large blobs are not inline.
const MaxSaved = (oci.MaxOverlay+oci.MaxBundles*oci.MaxBundle)/3*4 + 64<<10

// saved is a manifest whose layers are always inline.
func saved(kind string, c Candidate) []byte {
	return oci.Encode(oci.InlineManifest(kind, c.Document, c.Bundles...))
}

func load(data []byte, kind string, limit int64) (Candidate, error) {
	if len(data) > MaxSaved {
		return Candidate{}, refusal.New(refusal.Oversize, "saved candidate of %d bytes", len(data))
	}
	doc, bundles, err := oci.ReadKept(data, kind, limit)
	if err != nil {
		return Candidate{}, err
	}
	// Of these very bytes, so that "not modified" means them, whatever is written beside them.
	manifest, _ := oci.DocumentManifest(kind, doc, bundles...)
	return Candidate{ETag: oci.Digest(manifest), Document: doc, Bundles: bundles}, nil
}
