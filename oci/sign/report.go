// SPDX-License-Identifier: Apache-2.0

package sign

import (
	"crypto"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"

	"github.com/caisson-os/caisson/oci/internal/strict"
	"github.com/caisson-os/caisson/spec/refusal"
)

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
