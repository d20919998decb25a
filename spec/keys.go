// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"crypto/rand"
	"fmt"
	"strings"
	"time"
)

// KindKeys is the kind of [Keys].
const KindKeys = "Keys"

// Keys is the document of fleet:keys-VERSION: which keys count, from that version on. Each
// version is signed by the root keys of the one before and by its own, so a node that trusts one
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

// Roles are the keys by their rights. No key has two roles.
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

// KindRescue is the kind of [Rescue].
const KindRescue = "Rescue"

// Rescue is the document that lets an operator into one node for a while, signed by a rescue key:
// published as rescue:NODE, or carried to the machine. A node obeys it once, and only while it
// shows the code that stands in it; see docs/rescue.md.
type Rescue struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // KindRescue
	Fleet      string    `json:"fleet"`
	Node       string    `json:"node"`              // its name, or a tag by which the machine asks for its overlay
	Code       string    `json:"code"`              // that the node shows
	Lasts      int64     `json:"lasts"`             // seconds from when the node accepts it, at most [MaxRescue]
	SSHKeys    []string  `json:"sshKeys,omitempty"` // lines of authorized_keys without options, each for root
	Console    bool      `json:"console,omitempty"` // a shell of root on the console
	Reason     string    `json:"reason"`            // for people
	At         time.Time `json:"at"`                // when it was made; nothing depends on it
	Needs      []string  `json:"needs,omitempty"`   // what a reader must know to use this document; none so far
}

// What a [Rescue] may hold.
const (
	MaxRescue       = 24 * time.Hour
	MaxRescueKeys   = 8
	MaxRescueReason = 500 // bytes
)

// codeAlphabet is without what looks alike on a screen.
const codeAlphabet = "23456789abcdefghjkmnpqrstuvwxyz"

// codeLength gives 49 bits. A node looks at a handful of guesses in a minute, each of which a
// rescue key must have signed.
const codeLength = 10

// NewCode returns a code that nobody has guessed, for people to read and to type: xxxxx-xxxxx.
func NewCode() string {
	var code []byte
	for len(code) < codeLength {
		var random [1]byte
		rand.Read(random[:])
		if n := int(random[0]); n < 256/len(codeAlphabet)*len(codeAlphabet) { // else some letters were likelier
			code = append(code, codeAlphabet[n%len(codeAlphabet)])
		}
	}
	return string(code[:codeLength/2]) + "-" + string(code[codeLength/2:])
}

// ParseCode returns a code as [NewCode] writes it, however an operator has typed it.
func ParseCode(text string) (string, error) {
	code := strings.Map(func(r rune) rune {
		if r == '-' || r == ' ' {
			return -1
		}
		return r
	}, strings.ToLower(text))
	if len(code) != codeLength || strings.Trim(code, codeAlphabet) != "" {
		return "", fmt.Errorf("%.40q is not a code as a node shows it, such as k7m2q-9xfab", text)
	}
	return code[:codeLength/2] + "-" + code[codeLength/2:], nil
}

// RescueStatus names the operator who was let into a node, for its status and reports. There is none where
// no rescue key counts and no operator was let in.
type RescueStatus struct {
	Code    string    `json:"code,omitempty"` // for root on the node alone: it is in no report
	Open    bool      `json:"open"`
	Opens   []string  `json:"opens,omitempty"`   // ssh, console
	Reason  string    `json:"reason,omitempty"`  // of the statement
	Keys    []string  `json:"keys,omitempty"`    // ids of the keys that signed it
	Since   time.Time `json:"since,omitzero"`    // by the clock as it was then
	Left    int64     `json:"left,omitempty"`    // seconds
	Times   int       `json:"times,omitempty"`   // how often somebody was let in since the machine started
	Wrong   int       `json:"wrong,omitempty"`   // statements with another code since the machine started
	Trouble string    `json:"trouble,omitempty"` // why not all of it is open, or shut again
}
