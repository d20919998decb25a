// SPDX-License-Identifier: Apache-2.0

// Package view says what stands out in a fleet: it compares what is published for each
// node with what the node reports, and gives every node one condition, the worst.
//
// It is pure: rows and a time in, words out. fleet/hub holds the rows; the page, the
// metrics and the command line print what this package says, so that all agree.
package view

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// Node is one node: what it should be, and what it says it is. It is not changed once
// it is made.
type Node struct {
	Name      string
	Published *spec.Published // nil where nothing is published for it any more
	Report    *Brief          // nil where it has never reported
	Received  time.Time       // of the report
	Lost      string          // why its last report, which the database has, cannot be read
	Listens   time.Time       // since when a report could be heard, where that is later
	Grade     spec.KeyGrade
	Offered   *Offer // a report by a key that does not count yet
	Hint      *Hint  // what somebody who proves nothing says of it
	Quote     *Quote // nil where its TPM has shown nothing
}

// Brief holds what lists need of a report.
type Brief struct {
	Interval   time.Duration
	Generation uint64
	Overlay    string
	Layer      string
	Version    string // of the layer
	Agent      string
	BootID     string
	Staged     string
	Axes       spec.Axes
	Drift      int
	Paused     bool
	Services   []Commit
	Keys       *spec.KeysKnown
	Ended      time.Time // when an operation ended last
	TPM        string    // as [spec.Report] has it
}

// Offer is a key that an operator may accept.
type Offer struct {
	Key      string
	Seq      uint64 // of its last report
	Interval time.Duration
	Since    time.Time // since when other keys report for the node, this one or others
	Rival    time.Time // when another one than this and than the one that counts was last seen
	At       time.Time // when it was last seen
	Why      string    // it does not count
}

// Hint is an unproven word that a node's loader boots nothing. Neither a condition nor
// a count of those follows from it.
type Hint struct {
	Node string    `json:"node"`
	At   time.Time `json:"at"`   // when it came
	From string    `json:"from"` // address
	Why  string    `json:"why"`
	Code string    `json:"code,omitempty"` // for 'caisson rescue', as unproven as all of it
}

// HintKept is how long a hint is shown. A loader that still boots nothing gives another.
const HintKept = time.Hour

// NewBrief takes from a report what lists need.
func NewBrief(r *spec.Report) *Brief {
	var ended time.Time
	for _, o := range r.Operations {
		if at, _ := o.Ended(); at.After(ended) {
			ended = at
		}
	}
	axes := r.Axes
	for _, a := range []*spec.Axis{&axes.Tracking, &axes.Sync, &axes.Health, &axes.Activity} {
		a.State, a.Detail = once(a.State), once(a.Detail)
	}
	return &Brief{Ended: ended, Interval: time.Duration(r.Interval) * time.Second,
		Generation: r.Generation, Overlay: r.Overlay, Layer: once(r.Layer), Version: once(r.LayerVersion),
		Agent: once(r.Agent), BootID: r.BootID, Staged: r.Staged, Axes: axes, Drift: len(r.Drift) + r.More,
		Paused: r.Pause != nil, Services: commitsOf(r.Services), Keys: r.Keys, TPM: r.TPM}
}

// Condition is the one word for how a node is.
type Condition string

// Conditions, the worst first.
const (
	Broken      Condition = "broken"
	Quarantined Condition = "quarantined"
	Refused     Condition = "refused"
	Silent      Condition = "silent"
	OtherKey    Condition = "other-key"
	Degraded    Condition = "degraded"
	Unreachable Condition = "unreachable"
	Expired     Condition = "expired"
	Behind      Condition = "behind"
	Soaking     Condition = "soaking"
	Never       Condition = "never"
	Retired     Condition = "retired"
	Paused      Condition = "paused"
	Held        Condition = "held"
	Fine        Condition = "fine"
)

// Kind describes a condition for people.
type Kind struct {
	Condition Condition
	Says      string
	Trouble   bool // somebody should look
}

// Kinds are all conditions, the worst first.
var Kinds = []Kind{
	{Broken, "the node reports that it is broken", true},
	{Quarantined, "a setting was corrected too often, and the node leaves it alone", true},
	{Refused, "the node refuses what is published for it", true},
	{Silent, "the node stopped reporting", true},
	{OtherKey, "another key reports for the node", true},
	{Degraded, "something is not as published", true},
	{Unreachable, "the node reports, but does not reach the registry", true},
	{Expired, "what the node runs, or what confirms it, has expired", true},
	{Behind, "the node runs something older than is published", false},
	{Soaking, "what is published is in effect, and has yet to prove itself", false},
	{Never, "published, never reported", false},
	{Retired, "the node reported once, and nothing is published for it any more", false},
	{Paused, "nothing is enforced, by order", false},
	{Held, "it keeps its content, by order", false},
	{Fine, "as published", false},
}

// rank is the place of a condition among all, the worst first.
func (c Condition) rank() int {
	return slices.IndexFunc(Kinds, func(k Kind) bool { return k.Condition == c })
}

// KindOf returns the row of a condition.
func KindOf(c Condition) Kind {
	if i := c.rank(); i >= 0 {
		return Kinds[i]
	}
	return Kind{Condition: c}
}

// Patience returns how long a node may say nothing that reports at an interval: three of
// these, for a report may be lost and another one late.
func Patience(interval time.Duration) time.Duration {
	return 3*min(max(interval, time.Minute), rules.LongestReport) + time.Minute
}

// longestOffer bounds how long a key is shown as one that reports which says that it does
// so seldom: anybody can say that.
const longestOffer = time.Hour

// Reports reports whether a key that does not count still reports.
func (o *Offer) Reports(now time.Time) bool {
	return o != nil && now.Sub(o.At) <= Patience(min(o.Interval, longestOffer))
}

// Rivals reports whether another key than this, and than the one that counts, reports for
// the node.
func (o *Offer) Rivals(key string, now time.Time) bool {
	if o.Reports(now) && o.Key != key {
		return true
	}
	return o != nil && now.Sub(o.Rival) <= Patience(longestOffer/4)
}

// contested reports whether another key than the one that counts reports for a node. One
// that is made at boot has others after it, of boots that failed, too: where nothing was heard of
// the first since, that is a boot, and no conflict.
func (n *Node) contested(now time.Time) bool {
	if !n.Offered.Reports(now) {
		return false
	}
	return n.Grade != spec.KeyBoot || n.Received.After(n.Offered.Since)
}

// Silent reports whether a node that reported has said nothing for too long. What
// nobody could hear is not silence.
func (n *Node) Silent(now time.Time) bool {
	return n.overdue(now) && (n.Listens.IsZero() || now.Sub(n.Listens) > Patience(n.Report.Interval))
}

// overdue reports whether the last report of a node is older than it may be.
func (n *Node) overdue(now time.Time) bool {
	return n.Report != nil && now.Sub(n.Received).Abs() > Patience(n.Report.Interval) // one of a time to come is of a clock that was wrong
}

// Condition returns how a node is, and why.
func (n *Node) Condition(now time.Time) (Condition, string) {
	if n.Published == nil { // whatever it said last: nobody need look
		return Retired, "nothing is published for it"
	}
	b := n.Report
	if b == nil {
		if n.Offered.Reports(now) {
			return OtherKey, n.Offered.Why
		}
		if n.Lost != "" {
			return Silent, "its last report, which the database has, cannot be read: " + n.Lost
		}
		return Never, "never reported"
	}
	health, sync := b.Axes.Health, b.Axes.Sync
	silent, contested := n.Silent(now), n.contested(now)
	switch {
	case contested && silent: // what it said last is of a key that is gone
		return OtherKey, n.Offered.Why + "; " + lastReport(n)
	case health.State == "broken":
		return Broken, reason(health, "it reports so")
	case health.State == "quarantined":
		return Quarantined, reason(health, "it reports so")
	case strings.HasPrefix(sync.State, "refused:"):
		return Refused, reason(sync, sync.State)
	case silent:
		return Silent, lastReport(n)
	case contested:
		return OtherKey, n.Offered.Why
	case health.State != string(spec.HealthOK):
		return Degraded, reason(health, "no details")
	case sync.State == string(spec.SyncUnreachable):
		return Unreachable, reason(sync, "no details")
	case sync.State == string(spec.SyncExpired) || sync.State == string(spec.SyncUnconfirmed):
		return Expired, reason(sync, sync.State)
	case n.Differs():
		return Behind, n.behind()
	case b.Axes.Unproved():
		return Soaking, reason(b.Axes.Activity, "no details")
	case b.Paused || n.held(spec.HoldPause, now) != nil:
		return Paused, n.holdReason(spec.HoldPause, now)
	case n.held("", now) != nil:
		return Held, n.holdReason("", now)
	}
	return Fine, ""
}

func lastReport(n *Node) string {
	return "its last report came at " + n.Received.UTC().Format("2006-01-02 15:04 UTC")
}

func reason(a spec.Axis, without string) string { return cmp.Or(a.Detail, without) }

// Hinted returns the hint about a node; nil where it is old, or the node has reported
// since.
func (n *Node) Hinted(now time.Time) *Hint {
	if n.Hint == nil || now.Sub(n.Hint.At) > HintKept || n.Received.After(n.Hint.At) {
		return nil
	}
	return n.Hint
}

// Differs reports whether a node runs something else than is published for it, or on
// another layer.
func (n *Node) Differs() bool {
	if n.Published == nil || n.Report == nil {
		return false
	}
	return n.Report.Overlay != n.Published.Overlay || n.Report.Staged == n.Published.Overlay
}

func (n *Node) behind() string {
	text := plain.With(n.otherwise(), ": ", n.Report.Axes.Sync.Detail)
	if now := n.Report.Axes.Activity; now.State != "" && now.State != string(spec.ActivityIdle) { // what it waits for, or is at
		text = plain.With(text+"; "+now.State, ", ", now.Detail)
	}
	return text
}

// otherwise names in what a node differs from what is published for it: one generation may
// have another overlay, and an overlay another layer.
func (n *Node) otherwise() string {
	b, p := n.Report, n.Published
	switch {
	case b.Generation != p.Generation:
		return fmt.Sprintf("it runs generation %d, %d is published", b.Generation, p.Generation)
	case b.Overlay == p.Overlay:
		return fmt.Sprintf("it runs generation %d, whose layer waits", b.Generation)
	case b.Layer != p.Layer:
		return fmt.Sprintf("it runs generation %d on layer %s, and on %s it is published", b.Generation, shortLayer(b.Layer), shortLayer(p.Layer))
	}
	return fmt.Sprintf("it runs another overlay of generation %d than is published", b.Generation)
}

// shortLayer is the beginning of a layer's digest, as pages have it.
func shortLayer(of string) string {
	hex := digest.Hex(of)
	return cmp.Or(hex[:min(len(hex), 12)], "none")
}

// holds returns what holds a node at a time.
func (n *Node) holds(now time.Time) []spec.Hold {
	if n.Published == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(n.Published.Holds), func(h spec.Hold) bool { return h.Over(now) })
}

// held returns a hold of a kind, or, for "", of any but pause.
func (n *Node) held(kind string, now time.Time) *spec.Hold {
	for _, h := range n.holds(now) {
		if h.Kind == kind || kind == "" && h.Kind != spec.HoldPause {
			return &h
		}
	}
	return nil
}

func (n *Node) holdReason(kind string, now time.Time) string {
	h := n.held(kind, now)
	if h == nil {
		return "its overlay says so"
	}
	text := h.Kind + ": " + h.Reason
	if h.Author != "" {
		text += " (" + h.Author + ")"
	}
	return text
}

// Quote is the last quote of a node's TPM, as the service verified it, beside what an operator
// accepted. It is not changed once it is made.
type Quote struct {
	At       time.Time   `json:"at,omitzero"` // of the report that it was asked for at; zero: another is wanted
	Boot     string      `json:"boot"`        // of that report, as the next two
	Overlay  string      `json:"overlay"`
	Layer    string      `json:"layer"`
	State    Attestation `json:"state"` // Attested, Changed or NotAccepted
	Why      string      `json:"why,omitempty"`
	Accepted *Machine    `json:"accepted,omitempty"` // what it has to be
	Seen     *Machine    `json:"seen,omitempty"`     // what it was; nil where its signature or its logs do not hold
}

// Machine is the part of a quote that an operator accepts.
type Machine struct {
	Key  string   `json:"key"`          // digest of the TPM's public key
	EK   []byte   `json:"ek,omitempty"` // the endorsement key of the TPM that has it; nil where nothing showed that
	Code [][]byte `json:"code"`         // registers of the programs before the loader
	Stub []byte   `json:"stub"`         // what the loader left in register 11

	Programs [][]byte `json:"programs,omitempty"` // of the loader, which Code is without
}

// ID names a machine with all that is accepted of it, as a digest.
func (m *Machine) ID() string {
	return digest.Of(slices.Concat([]byte(m.Key), slices.Concat(m.Code...), m.Stub, m.EK))
}

// Whole reports whether a machine that was kept has all that it is compared by.
func (m *Machine) Whole(registers int) bool {
	sized := func(r []byte) bool { return len(r) == sha256.Size }
	return len(m.Code) == registers && sized(m.Stub) && !slices.ContainsFunc(slices.Concat(m.Code, m.Programs),
		func(r []byte) bool { return !sized(r) })
}

// Attestation is the word for what a node's TPM shows; "" where nobody knows.
type Attestation string

// Attestations.
const (
	Attested    Attestation = "attested"     // it booted what its fleet gave it, and runs that
	Changed     Attestation = "changed"      // something in it is not known, or not as accepted
	Downgraded  Attestation = "downgraded"   // it was accepted with a TPM, and reports none
	Stale       Attestation = "stale"        // its last quote is of before
	NotAccepted Attestation = "not-accepted" // nobody has accepted its key
	NoTPM       Attestation = "no-tpm"
)

// Attestations are all words, the worst first.
var Attestations = []Attestation{Downgraded, Changed, Stale, NotAccepted, NoTPM, Attested}

// QuoteLasts is how long a quote counts; it is renewed each hour.
const QuoteLasts = 3 * time.Hour

// Attestation returns what a node's TPM shows, and why it is not attested.
func (n *Node) Attestation(now time.Time) (word Attestation, why string) {
	b, q := n.Report, n.Quote
	if b == nil {
		return "", ""
	}
	if q == nil {
		q = &Quote{}
	}
	said := b.TPM != "" && b.TPM != spec.NoTPM
	another := q.Accepted != nil && q.Accepted.Key != b.TPM
	switch {
	case !said && q.Accepted != nil:
		return Downgraded, "it was accepted with the TPM's key " + q.Accepted.Key + ", and reports no TPM"
	case b.TPM == spec.NoTPM:
		return NoTPM, ""
	case !said:
		return "", ""
	case another && len(q.Accepted.EK) == 0:
		return Changed, fmt.Sprintf("it reports the TPM's key %s, and %s was accepted", b.TPM, q.Accepted.Key)
	case another && q.State != Changed:
		return Stale, "it reports another key of the TPM, which has not quoted yet"
	case q.At.IsZero():
		return Stale, "it has not quoted yet"
	case q.State == Attested && (q.Boot != b.BootID || q.Overlay != b.Overlay || q.Layer != b.Layer):
		return Stale, "its last quote is of what it ran before"
	case now.Sub(q.At).Abs() > QuoteLasts:
		return Stale, "its last quote is of " + q.At.UTC().Format("2006-01-02 15:04 UTC")
	}
	return q.State, q.Why
}

// Offers returns what an operator may accept of a node's last quote, nil where that is accepted.
func (n *Node) Offers() *Machine {
	if q := n.Quote; q != nil && q.Seen != nil && q.State != Attested && (q.Accepted == nil || q.Seen.ID() != q.Accepted.ID()) {
		return q.Seen
	}
	return nil
}
