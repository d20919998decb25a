// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"time"
)

// KindSlotRequest is the kind of [SlotRequest].
const KindSlotRequest = "SlotRequest"

// SlotRequest is what a node signs, as it signs a report, to prove that it asks for a
// slot or gives it back: FleetLock itself knows no proof of who asks.
type SlotRequest struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"` // KindSlotRequest
	Fleet      string    `json:"fleet"`
	Node       string    `json:"node"`
	Key        string    `json:"key"` // id of the key that signs this
	Group      string    `json:"group"`
	Act        string    `json:"act"`    // pre-reboot or steady-state
	BootID     string    `json:"bootId"` // that of the node's last report
	Time       time.Time `json:"time"`   // by the node's clock: each request's is later than that of the one before
}

// DecodeSlotRequest reads a request as any release may have signed it. What it asks for is in
// the keys of this release: it is compared with what came beside it.
func DecodeSlotRequest(data []byte) (SlotRequest, error) {
	var r SlotRequest
	if _, err := DecodeKnown(data, &r); err != nil {
		return r, err
	}
	if r.APIVersion != APIVersion || r.Kind != KindSlotRequest {
		return r, fmt.Errorf("it is a %.40q of %.40q, not a %s", r.Kind, r.APIVersion, KindSlotRequest)
	}
	return r, nil
}
