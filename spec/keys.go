// SPDX-License-Identifier: Apache-2.0

package spec

import "time"

// KindKeys is the kind of [Keys].
const KindKeys = "Keys"

// Keys is the document of fleet:keys-VERSION: which keys count, from that version on. Each
// version is signed by the root keys of the one before and by its own, so whoever trusts one
// version can follow the chain to the newest; see package oci/trust/chain.
type Keys struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // KindKeys
	Fleet      string    `json:"fleet"`
	Version    uint64    `json:"version"`            // 1 is the first
	Previous   string    `json:"previous,omitempty"` // digest of the document of the version before
	Roles      Roles     `json:"roles"`
	Revoked    []string  `json:"revoked,omitempty"` // ids of keys that never count again, sorted; none ever leaves
	Reason     string    `json:"reason,omitempty"`  // of the change, for people
	At         time.Time `json:"at"`                // when it was made; nothing depends on it
	Needs      []string  `json:"needs,omitempty"`   // what a reader must know to use this document; none so far
}

// Roles are the keys by what they may do. No key has two roles.
type Roles struct {
	Root        Role `json:"root"`                 // says which keys count; kept offline
	Operator    Role `json:"operator"`             // signs overlays and what holds for the whole fleet
	Release     Role `json:"release,omitzero"`     // signs layers; any one of them is enough
	Attestation Role `json:"attestation,omitzero"` // signs what was built how
	Epoch       Role `json:"epoch,omitzero"`       // alone may raise the security epoch; kept offline
	Rescue      Role `json:"rescue,omitzero"`      // lets somebody into a node, see docs/rescue.md
}

// Role is a set of keys, and how many distinct ones must have signed.
type Role struct {
	Keys      []string `json:"keys"`      // public keys, SPKI PEM
	Threshold int      `json:"threshold"` // at least 1
}

// NamedRole is a role by its name in the document.
type NamedRole struct {
	Name string
	Role *Role
}

// All returns the roles in the order of the document.
func (r *Roles) All() []NamedRole {
	return []NamedRole{
		{"root", &r.Root}, {"operator", &r.Operator}, {"release", &r.Release},
		{"attestation", &r.Attestation}, {"epoch", &r.Epoch}, {"rescue", &r.Rescue},
	}
}
