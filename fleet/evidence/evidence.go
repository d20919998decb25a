// SPDX-License-Identifier: Apache-2.0

// Package evidence says what was tried of a change before it is published: statements of
// rehearsals, signed by a key of role attestation and attached to the layer that a change leads
// to.
//
//	bundle, err := rehearsal.Sign(key)            // who rehearsed
//	err = release.AttachRehearsal(ctx, r, …)
//
//	err = shelf.Check(ctx, evidence.Asked{…})     // who is to publish: nil where one counts
//
// A statement is of a pair: the layer and the settings of before, and those of after. It holds for
// each node that goes the same way, so settings are compared without what names one node. Nodes
// ask for no statement: it is a rule of the operator's side.
package evidence

import (
	"crypto"
	"encoding/json"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/oci/sign"
	"github.com/caisson-os/caisson/spec"
)

// Predicate is the type of a statement of a rehearsal.
const Predicate = "https://caisson.dev/rehearsal/v1"

// Results of a [Rehearsal]. Only Passed counts.
const (
	Passed  = "passed"
	Differs = "differs" // it works, and something does not come back, or the class was not the one of the plan
	Failed  = "failed"  // the node does not arrive, is not healthy, or a check fails; also on the way back
)

// End is one end of a change.
type End struct {
	Layer    string `json:"layer"`    // digest of its manifest
	Settings string `json:"settings"` // digest, see [Settings]
}

// Machine describes the machine of a rehearsal.
type Machine struct {
	QEMU   string `json:"qemu"`   // version
	Arch   string `json:"arch"`   // Debian's word
	Memory int    `json:"memory"` // MiB
	KVM    bool   `json:"kvm"`    // else the processor was emulated
}

// Rehearsal is the predicate of a statement; its subject is the manifest of the layer in To.
type Rehearsal struct {
	Fleet    string    `json:"fleet"`
	From     End       `json:"from"`
	To       End       `json:"to"`
	Result   string    `json:"result"`             // Passed, Differs or Failed
	Reason   string    `json:"reason,omitempty"`   // why it is not Passed
	Said     string    `json:"said,omitempty"`     // class that the plan says
	Happened string    `json:"happened,omitempty"` // class that was seen; "" where the node did not arrive
	Machine  Machine   `json:"machine"`
	Version  string    `json:"version"` // of caisson
	IssuedAt time.Time `json:"issuedAt"`
}

// Sign returns a bundle with the signed statement.
func (r Rehearsal) Sign(key crypto.Signer) ([]byte, error) {
	r.IssuedAt = r.IssuedAt.UTC()
	predicate, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	return sign.Attest(key, r.To.Layer, Predicate, predicate)
}

// EndOf returns the end of a change at which a node has an overlay.
func EndOf(o *spec.Overlay) (End, error) {
	settings, err := Settings(o)
	return End{o.Layer, settings}, err
}

// Settings returns the digest of an overlay's settings: all of it without its layer, without what
// names one node (name, identifiers, addresses, sealed secrets), and without what says when it may
// change and not to what (windows, a pause).
func Settings(o *spec.Overlay) (string, error) {
	c := *o
	c.Node, c.Match, c.Layer, c.Variant = "", spec.Match{}, "", ""
	c.Needs = nil // follows from the rest, and from whether there are secrets
	c.Maintenance, c.Pause, c.Secrets = nil, nil, nil
	c.Network.Interfaces = slices.Clone(c.Network.Interfaces)
	for i := range c.Network.Interfaces {
		card := &c.Network.Interfaces[i]
		card.MAC, card.Addresses = "", nil
		if card.Bond != nil {
			bond := *card.Bond
			bond.Members, bond.Primary = make([]string, len(bond.Members)), ""
			card.Bond = &bond
		}
	}
	c.Items.NICs = slices.Clone(c.Items.NICs)
	for i := range c.Items.NICs {
		c.Items.NICs[i].Match.MAC = ""
	}
	doc, err := spec.Encode(c)
	return digest.Of(doc), err
}
