// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"encoding/json"
	"fmt"
	"strings"
)

// KindHint is the kind of [Hint].
const KindHint = "Hint"

// Hint holds the message of a loader that boots nothing to the fleet's service. It is not signed,
// so a client that reaches the service can send one in the name of any node: it is shown as
// unproven, and nothing follows from it.
type Hint struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"` // KindHint
	Fleet      string `json:"fleet"`
	Node       string `json:"node,omitempty"` // the name that the machine was given
	Match      Match  `json:"match,omitzero"` // what it is else known by
	Why        string `json:"why"`
	Code       string `json:"code,omitempty"` // that its console shows, see [Rescue]; "" where no rescue key counts
}

// What a hint may hold.
const (
	MaxHint    = 4 << 10 // bytes of it
	maxHintWhy = 500     // bytes of Why
	maxClaims  = 16      // of each kind
)

// NewHint returns a hint that is not too large.
func NewHint(fleet, node string, match Match, why string) Hint {
	if why = strings.ToValidUTF8(why, "?"); len(why) > maxHintWhy {
		why = strings.ToValidUTF8(why[:maxHintWhy], "") // without what the cut left of a sign
	}
	match.MACs, match.UUIDs = match.MACs[:min(len(match.MACs), maxClaims)], match.UUIDs[:min(len(match.UUIDs), maxClaims)]
	return Hint{APIVersion: APIVersion, Kind: KindHint, Fleet: fleet, Node: node, Match: match, Why: why}
}

// DecodeHint reads a hint as anybody may have written it.
func DecodeHint(data []byte) (Hint, error) {
	var h Hint
	if err := json.Unmarshal(data, &h); err != nil {
		return h, fmt.Errorf("decode hint: %w", err)
	}
	if h.APIVersion != APIVersion || h.Kind != KindHint {
		return h, fmt.Errorf("decode hint: it is a %.40q of %.40q", h.Kind, h.APIVersion)
	}
	valid := NewHint(h.Fleet, h.Node, h.Match, h.Why)
	if code, err := ParseCode(h.Code); err == nil { // anything else is not shown to anybody
		valid.Code = code
	}
	return valid, nil
}
