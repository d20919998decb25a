// SPDX-License-Identifier: Apache-2.0

// Package sign makes and checks the signatures of caisson: ECDSA P-256 over
// in-toto statements, as sigstore bundles v0.3 that cosign v2.6 and v3 verify.
//
// Statements differ by their predicate type: what a node is to be
// ([SignOverlay]), what holds for a fleet ([SignFleet], [SignEpoch]) and which keys
// count in it ([SignKeys]), that an artifact was released ([SignArtifact], cosign's
// own form), and what is attested of it ([Attest]). A key has one role:
// cosign takes any attestation by a key for its signature, so keys that attest
// never release, and keys that release never command nodes.
//
// A public key is a [Verifier]; its algorithm is known in this package only. Private
// keys in files are read by oci/keys. There is no certificate authority, no
// transparency log and no network here. The package decides whether bytes were
// signed by enough trusted keys and for which purpose; whether a node obeys them is
// decided by package trust.
//
// Formats: DSSE v1, in-toto statement v1, sigstore bundle v0.3. See
// docs/transport.md.
package sign

import (
	"cmp"
	"crypto"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	digests "github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/internal/strict"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Types of statements and predicates.
const (
	payloadType = "application/vnd.in-toto+json"
	statementV1 = "https://in-toto.io/Statement/v1"
	statementV0 = "https://in-toto.io/Statement/v0.1" // what cosign attest still writes

	PredicateOverlay  = "https://caisson.dev/overlay/v1"
	PredicateFleet    = "https://caisson.dev/fleet/v1"
	PredicateRollout  = "https://caisson.dev/rollout/v1"
	PredicateIndex    = "https://caisson.dev/fleet-index/v1"
	PredicateEpoch    = "https://caisson.dev/epoch/v1"
	PredicateKeys     = "https://caisson.dev/keys/v1"
	PredicateRescue   = "https://caisson.dev/rescue/v1"
	PredicateApproval = "https://caisson.dev/approval/v1"
	PredicateCosign   = "https://sigstore.dev/cosign/sign/v1"

	PredicateProvenance = "https://slsa.dev/provenance/v1"
)

// MaxNumber bounds epochs and generations: what every JSON reader holds exactly.
const MaxNumber = 1<<53 - 1

// Predicate holds the signed facts on an overlay besides its digest: whom it is
// for, which layer it needs, and when.
type Predicate struct {
	Fleet      string    `json:"fleet"`
	Node       string    `json:"node"`
	Match      Match     `json:"match"`
	Layer      string    `json:"layer"` // digest of the layer's manifest; "" where a node keeps its own system
	Epoch      uint64    `json:"epoch"`
	Generation uint64    `json:"generation"`
	IssuedAt   time.Time `json:"issuedAt"`
	Expires    time.Time `json:"expires"`
	Needs      []string  `json:"needs,omitempty"`  // what a verifier must know to rely on this; none so far
	RunsOn     []string  `json:"runsOn,omitempty"` // digests of other layers on which what is live of it may be applied, newest first
}

// MaxRunsOn bounds [Predicate.RunsOn].
const MaxRunsOn = 8

// Match holds the identifiers that a machine must have one of.
type Match struct {
	MACs  []string `json:"macs,omitempty"`
	UUIDs []string `json:"uuids,omitempty"`
}

// FleetPredicate is signed about fleet:current and fleet:index.
type FleetPredicate struct {
	Fleet    string    `json:"fleet"`
	IssuedAt time.Time `json:"issuedAt"`
	Expires  time.Time `json:"expires"`
	Needs    []string  `json:"needs,omitempty"`
}

// EpochPredicate permits an epoch. Its subject is [EpochText].
type EpochPredicate struct {
	Fleet string   `json:"fleet"`
	Epoch uint64   `json:"epoch"`
	Needs []string `json:"needs,omitempty"`
}

// KeysPredicate is signed about a version of fleet:keys. It does not expire: a node that was
// off for years still finds its way to the newest version.
type KeysPredicate struct {
	Fleet    string    `json:"fleet"`
	Version  uint64    `json:"version"`
	IssuedAt time.Time `json:"issuedAt"`
	Needs    []string  `json:"needs,omitempty"`
}

// RescuePredicate is signed about a document that lets an operator into a node. It holds for as
// long as the node has the code, which is new at each boot.
type RescuePredicate struct {
	Fleet    string    `json:"fleet"`
	Node     string    `json:"node"`
	Code     string    `json:"code"`
	IssuedAt time.Time `json:"issuedAt"`
	Needs    []string  `json:"needs,omitempty"`
}

// ApprovalPredicate is signed about the digest of a plan that may be published. It does not
// expire: the plan is of one change of what is published now.
type ApprovalPredicate struct {
	Fleet    string    `json:"fleet"`
	Author   string    `json:"author"`           // who approves, for the fleet's history
	Reason   string    `json:"reason,omitempty"` // why, for the same
	IssuedAt time.Time `json:"issuedAt"`
	Needs    []string  `json:"needs,omitempty"`
}

// EpochText returns the text that an epoch key signs, as a file for cosign attest-blob.
func EpochText(fleet string, epoch uint64) []byte {
	return fmt.Appendf(nil, "%s %d\n", fleet, epoch)
}

type statement struct {
	Type          string          `json:"_type"`
	Subject       []subject       `json:"subject"`
	PredicateType string          `json:"predicateType"`
	Predicate     json.RawMessage `json:"predicate"`
}

type subject struct {
	Name        string            `json:"name,omitempty"`
	Digest      map[string]string `json:"digest"`
	Annotations map[string]any    `json:"annotations,omitempty"`
}

func newStatement(digest, predicateType string, predicate []byte) ([]byte, error) {
	if !oci.ValidDigest(digest) {
		return nil, fmt.Errorf("sign: digest %.80q is not valid", digest)
	}
	return json.Marshal(statement{
		Type:          statementV1,
		Subject:       []subject{{Digest: map[string]string{"sha256": digests.Hex(digest)}}},
		PredicateType: predicateType,
		Predicate:     predicate,
	})
}

// check refuses what no publisher means.
func (p *Predicate) check() error {
	lacks := p.Fleet == "" || p.Node == "" || p.Layer != "" && !oci.ValidDigest(p.Layer)
	runs := len(p.RunsOn) > MaxRunsOn || slices.ContainsFunc(p.RunsOn, func(d string) bool { return !oci.ValidDigest(d) })
	return cmp.Or(checkNeeds(p.Needs),
		refusal.If(lacks, refusal.Predicate, "the statement lacks fleet or node, or its layer is not a digest"),
		refusal.If(p.Epoch > MaxNumber || p.Generation > MaxNumber || p.Generation == 0, refusal.BadNumber,
			"epoch %d, generation %d", p.Epoch, p.Generation),
		refusal.If(runs, refusal.Predicate, "runsOn names %d layers, or what is not a digest", len(p.RunsOn)),
		checkTimes(p.IssuedAt, p.Expires))
}

func (p *FleetPredicate) check() error {
	return cmp.Or(checkNeeds(p.Needs), checkFleet(p.Fleet), checkTimes(p.IssuedAt, p.Expires))
}

func (p *EpochPredicate) check() error {
	return cmp.Or(checkNeeds(p.Needs), checkFleet(p.Fleet), refusal.If(p.Epoch > MaxNumber, refusal.BadNumber, "epoch %d", p.Epoch))
}

func (p *KeysPredicate) check() error {
	return cmp.Or(checkNeeds(p.Needs), checkFleet(p.Fleet),
		refusal.If(p.Version < 1 || p.Version > MaxNumber, refusal.BadNumber, "version %d of the keys", p.Version))
}

func (p *RescuePredicate) check() error {
	return cmp.Or(checkNeeds(p.Needs),
		refusal.If(p.Fleet == "" || p.Node == "" || p.Code == "", refusal.Predicate, "the statement lacks fleet, node or code"))
}

func (p *ApprovalPredicate) check() error {
	return cmp.Or(checkNeeds(p.Needs),
		refusal.If(p.Fleet == "" || p.Author == "", refusal.Predicate, "the statement lacks fleet or author"))
}

// checkNeeds refuses a predicate that another release made and that must not be
// read without what it names. Other keys that are unknown here are left out.
func checkNeeds(needs []string) error {
	return refusal.If(len(needs) > 0, refusal.NeedsAgent, "the statement needs %.200q", needs)
}

func checkFleet(name string) error {
	return refusal.If(name == "", refusal.Predicate, "the statement names no fleet")
}

func checkTimes(issued, expires time.Time) error {
	return refusal.If(issued.Year() < 2000 || issued.Year() > 9998 || !expires.After(issued), refusal.Validity,
		"issued at %s, expires at %s", issued.Format(time.RFC3339), expires.Format(time.RFC3339))
}

// PayloadReport is the type of what a node says of itself. It is not a statement of
// in-toto: what verifies those takes no report, whichever key signed it.
const PayloadReport = "https://caisson.dev/report/v1"

// MaxReport is the largest signed report in bytes.
const MaxReport = 16 << 10

// report is a DSSE envelope. KeyID is the public key itself, which nobody else has
// to know before.
type report struct {
	Payload     []byte            `json:"payload"`
	PayloadType string            `json:"payloadType"`
	Signatures  []reportSignature `json:"signatures"`
}

type reportSignature struct {
	KeyID string `json:"keyid"` // base64 of the SPKI
	Sig   []byte `json:"sig"`
}

// SignReport seals what a node says of itself with the node's own key.
func SignReport(signer crypto.Signer, payload []byte) ([]byte, error) {
	pub, err := NewVerifier(signer.Public())
	if err != nil {
		return nil, err
	}
	sig, err := pub.sign(signer, preAuth(PayloadReport, payload))
	if err != nil {
		return nil, err
	}
	spki, _ := pem.Decode(pub.PEM())
	return json.Marshal(report{payload, PayloadReport, []reportSignature{{base64.StdEncoding.EncodeToString(spki.Bytes), sig}}})
}

// OpenReport returns what a report says, and the key that signed it. Whose key that
// is the caller must know: anyone can make one. The payload should name the key's
// id, since a signature alone does not say which of several keys made it.
func OpenReport(raw []byte) (payload []byte, key Verifier, err error) {
	if len(raw) > MaxReport {
		return nil, nil, refusal.New(refusal.BundleSize, "report of %d bytes", len(raw))
	}
	var r report
	if err := strict.Decode(raw, &r); err != nil {
		return nil, nil, refusal.New(refusal.Bundle, "report: %w", err)
	}
	if n := len(r.Signatures); n != 1 {
		return nil, nil, refusal.New(refusal.Envelope, "%d signatures in one report", n)
	}
	if r.PayloadType != PayloadReport {
		return nil, nil, refusal.New(refusal.PayloadType, "payload of type %.80q", r.PayloadType)
	}
	spki, err := base64.StdEncoding.DecodeString(r.Signatures[0].KeyID)
	if err != nil {
		return nil, nil, refusal.New(refusal.BadKey, "the key of a report: %w", err)
	}
	if key, err = ParsePublic(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: spki})); err != nil {
		return nil, nil, err
	}
	if !key.Verify(preAuth(PayloadReport, r.Payload), r.Signatures[0].Sig) {
		return nil, nil, refusal.New(refusal.Signature, "the key that the report names did not make its signature")
	}
	return r.Payload, key, nil
}

// SignerIDs returns the ids of the keys of some signers.
func SignerIDs(signers []crypto.Signer) map[string]bool {
	ids := map[string]bool{}
	for _, s := range signers {
		if pub, err := NewVerifier(s.Public()); err == nil {
			ids[pub.ID()] = true
		}
	}
	return ids
}

// Each has each of some signers make a statement.
func Each[S crypto.Signer](by []S, f func(S) ([]byte, error)) (bundles [][]byte, err error) {
	for _, s := range by {
		b, err := f(s)
		if err != nil {
			return nil, err
		}
		bundles = append(bundles, b)
	}
	return bundles, nil
}
