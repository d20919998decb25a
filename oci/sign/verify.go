// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"crypto"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/oci/internal/strict"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Verified is a statement that enough distinct keys have signed.
type Verified[P any] struct {
	Predicate P
	Keys      []string // ids of the keys, sorted
}

// form is a kind of statement.
type form[P any] struct {
	kind  string             // the predicate's type
	sound func(*P) error     // refuses what no signer means
	newer func(a, b *P) bool // which of two that enough keys signed counts
}

var (
	overlays = form[Predicate]{PredicateOverlay, (*Predicate).check, newerOverlay}
	epochs   = form[EpochPredicate]{PredicateEpoch, (*EpochPredicate).check, func(a, b *EpochPredicate) bool { return false }}
	versions = form[KeysPredicate]{PredicateKeys, (*KeysPredicate).check,
		func(a, b *KeysPredicate) bool { return a.IssuedAt.After(b.IssuedAt) }}
	rescues = form[RescuePredicate]{PredicateRescue, (*RescuePredicate).check,
		func(a, b *RescuePredicate) bool { return a.IssuedAt.After(b.IssuedAt) }}
	approvals = form[ApprovalPredicate]{PredicateApproval, (*ApprovalPredicate).check,
		func(a, b *ApprovalPredicate) bool { return a.IssuedAt.After(b.IssuedAt) }}
)

// VerifyOverlay finds among the bundles the statement about an overlay that at
// least threshold distinct keys have signed. Bad bundles are passed over. Of
// several good statements, the one with the greatest (epoch, generation, time of
// issue) counts.
func VerifyOverlay(bundles [][]byte, keys []Verifier, threshold int, overlayDigest string) (*Verified[Predicate], error) {
	return overlays.verify(whole, set{bundles, keys, threshold}, overlayDigest)
}

// VerifyFleet does for a document about the fleet what [VerifyOverlay] does for
// an overlay.
func VerifyFleet(bundles [][]byte, keys []Verifier, threshold int, documentDigest, kind string) (*Verified[FleetPredicate], error) {
	of := form[FleetPredicate]{kind, (*FleetPredicate).check, func(a, b *FleetPredicate) bool { return a.IssuedAt.After(b.IssuedAt) }}
	return of.verify(whole, set{bundles, keys, threshold}, documentDigest)
}

// VerifyEpoch says whether the bundles permit an epoch.
func VerifyEpoch(bundles [][]byte, keys []Verifier, fleet string, epoch uint64) error {
	v, err := epochs.verify(whole, set{bundles, keys, 1}, oci.Digest(EpochText(fleet, epoch)))
	if err != nil {
		return err
	}
	return refusal.If(v.Predicate.Fleet != fleet || v.Predicate.Epoch != epoch, refusal.Subject,
		"the permission is for epoch %d of fleet %q", v.Predicate.Epoch, v.Predicate.Fleet)
}

// VerifyKeys does for a version of fleet:keys what [VerifyOverlay] does for an overlay.
func VerifyKeys(bundles [][]byte, keys []Verifier, threshold int, documentDigest string) (*Verified[KeysPredicate], error) {
	return versions.verify(whole, set{bundles, keys, threshold}, documentDigest)
}

// VerifyRescue does for a document that lets an operator into a node what [VerifyOverlay] does
// for an overlay.
func VerifyRescue(bundles [][]byte, keys []Verifier, threshold int, documentDigest string) (*Verified[RescuePredicate], error) {
	return rescues.verify(whole, set{bundles, keys, threshold}, documentDigest)
}

// VerifyApproval returns what one of the keys signed about the digest of a plan. Operators
// approve by themselves, so whether they are enough is for the caller to count.
func VerifyApproval(bundle []byte, keys []Verifier, plan string) (*Verified[ApprovalPredicate], error) {
	return approvals.verify(whole, set{[][]byte{bundle}, keys, 1}, plan)
}

// VerifyArtifact says whether one of the keys released a manifest.
func VerifyArtifact(raw []byte, manifestDigest string, keys []Verifier) error {
	c := &candidate{raw: raw, digest: manifestDigest, kind: PredicateCosign, keys: keys}
	_, err := c.run(bundleChecks)
	return err
}

// VerifyAttestation returns the predicate that one of the keys signed about a
// subject. It may be as large as provenance is; no node reads one.
func VerifyAttestation(raw []byte, subjectDigest, predicateType string, keys []Verifier) (json.RawMessage, error) {
	c := &candidate{raw: raw, limit: oci.MaxAttested, digest: subjectDigest, kind: predicateType, keys: keys}
	if _, err := c.run(bundleChecks); err != nil {
		return nil, err
	}
	return c.statement.Predicate, nil
}

// VerifyPredicate reads into a value the predicate that one of the keys signed about a
// subject. Keys of a later release are left out; a predicate that needs anything is refused.
func VerifyPredicate(raw []byte, subjectDigest, predicateType string, keys []Verifier, into any) error {
	predicate, err := VerifyAttestation(raw, subjectDigest, predicateType, keys)
	if err != nil {
		return err
	}
	var head struct {
		Needs []string `json:"needs"`
	}
	for _, v := range []any{&head, into} {
		if err := strict.Decode(predicate, v); err != nil {
			return refusal.New(refusal.Predicate, "predicate: %w", err)
		}
	}
	return checkNeeds(head.Needs)
}

// run returns how many checks the candidate passed, so that the caller reports the
// failure of the bundle that came furthest.
func (c *candidate) run(checks check.List[*candidate]) (int, error) {
	for i, check := range checks {
		if err := check.OK(c); err != nil {
			return i, err
		}
	}
	return len(checks), nil
}

func newerOverlay(a, b *Predicate) bool {
	switch {
	case a.Epoch != b.Epoch:
		return a.Epoch > b.Epoch
	case a.Generation != b.Generation:
		return a.Generation > b.Generation
	}
	return a.IssuedAt.After(b.IssuedAt)
}

// verify finds the statement about a digest that enough keys of a set have signed.
func (f form[P]) verify(r rules, of set, digest string) (*Verified[P], error) {
	if err := r.set.Run(of); err != nil {
		return nil, err
	}
	signers := map[string][]string{} // by the statement's predicate
	found := map[string]*P{}
	best, excuse := -1, error(nil)
	for _, raw := range of.bundles {
		p := new(P)
		c := &candidate{raw: raw, digest: digest, kind: f.kind, keys: of.keys, into: p, sound: func() error { return f.sound(p) }}
		passed, err := c.run(r.bundle)
		if err != nil {
			if passed > best {
				best, excuse = passed, err
			}
			continue
		}
		same, err := json.Marshal(p)
		if err != nil {
			return nil, err
		}
		id := string(same)
		found[id] = p
		if !slices.Contains(signers[id], c.signer) {
			signers[id] = append(signers[id], c.signer)
		}
	}
	winner := ""
	for id, who := range signers {
		if r.enough(who, of.threshold) && (winner == "" || f.newer(found[id], found[winner])) {
			winner = id
		}
	}
	if winner != "" {
		slices.Sort(signers[winner])
		return &Verified[P]{*found[winner], signers[winner]}, nil
	}
	for _, who := range signers {
		return nil, refusal.New(refusal.Threshold, "%d of %d keys have signed, %d are needed: %s", len(who), len(of.keys),
			of.threshold, strings.Join(who, ", "))
	}
	return nil, excuse
}

// bundle is the part of a sigstore bundle v0.3 that matters without log and
// authority. Others write more into theirs; it is ignored.
type bundle struct {
	MediaType    string       `json:"mediaType"`
	Verification verification `json:"verificationMaterial"`
	Envelope     *dsse        `json:"dsseEnvelope,omitempty"`
}

type verification struct {
	PublicKey *publicKey `json:"publicKey,omitempty"`
}

type publicKey struct {
	Hint string `json:"hint"`
}

type dsse struct {
	Payload     []byte      `json:"payload"`
	PayloadType string      `json:"payloadType"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	Sig []byte `json:"sig"`
}

// SignOverlay signs what a node is to be. The digest is that of the overlay's
// document, not of the manifest around it.
func SignOverlay(signer crypto.Signer, overlayDigest string, p Predicate) ([]byte, error) {
	p.IssuedAt, p.Expires = p.IssuedAt.UTC(), p.Expires.UTC()
	return signPredicate(signer, overlayDigest, PredicateOverlay, &p)
}

// SignFleet signs a document about the whole fleet; kind is [PredicateFleet]
// for fleet:current, [PredicateIndex] for fleet:index.
func SignFleet(signer crypto.Signer, documentDigest, kind string, p FleetPredicate) ([]byte, error) {
	p.IssuedAt, p.Expires = p.IssuedAt.UTC(), p.Expires.UTC()
	return signPredicate(signer, documentDigest, kind, &p)
}

// SignEpoch permits a fleet's nodes to go to an epoch.
func SignEpoch(signer crypto.Signer, p EpochPredicate) ([]byte, error) {
	return signPredicate(signer, oci.Digest(EpochText(p.Fleet, p.Epoch)), PredicateEpoch, &p)
}

// SignKeys signs a version of fleet:keys; the digest is that of its document.
func SignKeys(signer crypto.Signer, documentDigest string, p KeysPredicate) ([]byte, error) {
	p.IssuedAt = p.IssuedAt.UTC()
	return signPredicate(signer, documentDigest, PredicateKeys, &p)
}

// SignRescue signs a document that lets an operator into a node; the digest is that of the document.
func SignRescue(signer crypto.Signer, documentDigest string, p RescuePredicate) ([]byte, error) {
	p.IssuedAt = p.IssuedAt.UTC()
	return signPredicate(signer, documentDigest, PredicateRescue, &p)
}

// SignApproval says that a plan may be published; the digest is the plan's.
func SignApproval(signer crypto.Signer, plan string, p ApprovalPredicate) ([]byte, error) {
	p.IssuedAt = p.IssuedAt.UTC()
	return signPredicate(signer, plan, PredicateApproval, &p)
}

// SignArtifact says that a manifest was released, in the form of cosign sign.
func SignArtifact(signer crypto.Signer, manifestDigest string) ([]byte, error) {
	return Attest(signer, manifestDigest, PredicateCosign, []byte("{}"))
}

// Attest signs a predicate of any type about a subject, for example provenance.
func Attest(signer crypto.Signer, subjectDigest, predicateType string, predicate []byte) ([]byte, error) {
	payload, err := newStatement(subjectDigest, predicateType, predicate)
	if err != nil {
		return nil, err
	}
	return seal(signer, payload)
}

// signPredicate signs what passes its own check.
func signPredicate(signer crypto.Signer, digest, predicateType string, p interface{ check() error }) ([]byte, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	return Attest(signer, digest, predicateType, raw)
}

// seal puts a signed payload into a bundle.
func seal(signer crypto.Signer, payload []byte) ([]byte, error) {
	pub, err := NewVerifier(signer.Public())
	if err != nil {
		return nil, fmt.Errorf("sign: %w", err)
	}
	message := preAuth(payloadType, payload)
	sig, err := pub.sign(signer, message)
	if err != nil {
		return nil, err
	}
	return json.Marshal(bundle{
		MediaType:    oci.TypeBundle,
		Verification: verification{PublicKey: &publicKey{Hint: pub.ID()}},
		Envelope:     &dsse{Payload: payload, PayloadType: payloadType, Signatures: []signature{{Sig: sig}}},
	})
}

// preAuth is DSSE's pre-authentication encoding: what is really signed.
func preAuth(payloadType string, payload []byte) []byte {
	b := fmt.Appendf(nil, "DSSEv1 %d %s %d ", len(payloadType), payloadType, len(payload))
	return append(b, payload...)
}
