// SPDX-License-Identifier: Apache-2.0

package view

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
)

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
