// SPDX-License-Identifier: Apache-2.0

package spec

// KindFleet is the kind of [Fleet].
const KindFleet = "Fleet"

// Fleet is the document of fleet:current: what holds for every node now. It is
// small, signed and signed again daily; for nodes without a disk it is the only
// protection against an old overlay.
type Fleet struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"` // KindFleet
	Fleet      string   `json:"fleet"`
	Minimum    Floor    `json:"minimum"`          // least epoch and generation that nodes may run
	Reject     []string `json:"reject,omitempty"` // digests of overlays and layers that must not run
}
