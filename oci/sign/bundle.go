// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"crypto"
	"encoding/json"
	"fmt"

	"github.com/caisson-os/caisson/oci"
)

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
