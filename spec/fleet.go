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
	Needs      []string `json:"needs,omitempty"`  // what a reader must know to use this document; none so far
}

// KindFleetIndex is the kind of [FleetIndex].
const KindFleetIndex = "FleetIndex"

// FleetIndex is the document of fleet:index: what is published, for operators
// and their tools. Nodes never read it.
type FleetIndex struct {
	APIVersion string               `json:"apiVersion"`
	Kind       string               `json:"kind"` // KindFleetIndex
	Fleet      string               `json:"fleet"`
	Epoch      uint64               `json:"epoch"`
	Generation uint64               `json:"generation"`      // the last one given out
	Grant      []byte               `json:"grant,omitempty"` // the epoch key's word for Epoch, when it is not 0
	Threshold  int                  `json:"threshold"`
	Operator   []string             `json:"operator"`           // public keys that nodes trust, PEM
	Release    []string             `json:"release"`            // public keys that layers must be signed by, PEM
	Lifetime   int64                `json:"lifetime"`           // of an overlay's signature, seconds
	Reserved   bool                 `json:"reserved,omitempty"` // Generation is given out, Nodes are still those before it
	Nodes      map[string]Published `json:"nodes"`
}

// Published is one node in a [FleetIndex].
type Published struct {
	Manifest   string `json:"manifest"` // digest of the overlay's manifest
	Overlay    string `json:"overlay"`  // digest of the overlay document
	Layer      string `json:"layer,omitempty"`
	Generation uint64 `json:"generation"`
	Expires    int64  `json:"expires"` // seconds since 1970
	Pinned     bool   `json:"pinned,omitempty"`
	Match      Match  `json:"match,omitzero"` // the machines that the overlay is bound to, and its other tags
}
