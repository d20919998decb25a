// SPDX-License-Identifier: Apache-2.0

package spec

import "time"

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

	KeysVersion uint64   `json:"keysVersion,omitempty"` // newest version of fleet:keys; a node that cannot get it accepts nothing new
	Loaders     []Loader `json:"loaders,omitempty"`     // what disks start, one an architecture, sorted by it
}

// Loader names what disks of nodes start: an artifact of the repository of loaders. A node
// copies it as it is, and only ever goes on to a higher number.
type Loader struct {
	Arch     string `json:"arch"`     // Debian's name
	Number   int64  `json:"number"`   // IMAGE_VERSION of the program, by which boot managers order loaders; it only rises
	Manifest string `json:"manifest"` // digest of the artifact
	Image    Blob   `json:"image"`    // the program, a unified kernel image
	ESP      Blob   `json:"esp"`      // EFI system partition of 1 GiB that holds it, FAT32, without what is free at its end
}

// KindFleetIndex is the kind of [FleetIndex].
const KindFleetIndex = "FleetIndex"

// FleetIndex is the document of fleet:index and of fleet:gen-EPOCH-GENERATION: what
// is published, for operators and their tools. Nodes never read it.
//
// It is a signed root: the rows are in shards, which it names by digest, so that a
// change of one node of many writes little.
type FleetIndex struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"` // KindFleetIndex
	Fleet      string       `json:"fleet"`
	Epoch      uint64       `json:"epoch"`
	Generation uint64       `json:"generation"`         // the last one given out
	Grant      []byte       `json:"grant,omitempty"`    // the epoch key's word for Epoch, when it is not 0
	Threshold  int          `json:"threshold"`          // distinct keys that must have signed
	Operator   []string     `json:"operator"`           // public keys that nodes trust, PEM
	Release    []string     `json:"release"`            // public keys that layers must be signed by, PEM
	Lifetime   int64        `json:"lifetime"`           // of an overlay's signature, seconds
	Reserved   bool         `json:"reserved,omitempty"` // Generation is given out, the rows are still those before it
	Change     *FleetChange `json:"change,omitempty"`   // what took Generation
	Doing      *FleetChange `json:"doing,omitempty"`    // while Reserved: what takes Generation; Change is that before
	// while Reserved: nodes whose tags Generation may move, sorted; nil where they are too many to name
	Moves []string `json:"moves,omitzero"`
	// generations that a revocation met and its publisher had not given out: no node goes back to them
	Foreign  []Span             `json:"foreign,omitempty"`
	Rollouts map[string]Rollout `json:"rollouts,omitempty"` // by name; of those that ended the newest
	Shards   []Shard            `json:"shards,omitempty"`   // 2^n: shard i has the nodes whose names' SHA-256 begins with the n bits of i
}

// Span is some generations of an epoch, one after the other.
type Span struct {
	Epoch uint64 `json:"epoch"`
	From  uint64 `json:"from"` // the first
	To    uint64 `json:"to"`   // the last
}

// FleetChange says what a generation was for. Who signed it proves who did it;
// this is for people.
type FleetChange struct {
	Verb      string `json:"verb"`
	Author    string `json:"author,omitempty"`
	Reason    string `json:"reason,omitempty"`
	Commit    string `json:"commit,omitempty"` // of the site, with a "+" behind it where the site differs from it
	At        int64  `json:"at"`               // seconds since 1970
	Published int    `json:"published"`        // nodes that were given an overlay
}

// Shard is a part of a [FleetIndex]. A reader that wants only the root's numbers
// need not read it.
type Shard struct {
	Manifest string `json:"manifest"`        // digest of the artifact in the repository of the nodes
	Nodes    int    `json:"nodes"`           // rows in it
	Least    uint64 `json:"least,omitempty"` // generation of its nodes
}

// KindFleetShard is the kind of [FleetShard].
const KindFleetShard = "FleetShard"

// FleetShard is the document of a [Shard].
type FleetShard struct {
	APIVersion string               `json:"apiVersion"`
	Kind       string               `json:"kind"` // KindFleetShard
	Fleet      string               `json:"fleet"`
	Nodes      map[string]Published `json:"nodes"`
}

// Published is the row of one node in a [FleetIndex].
type Published struct {
	Manifest   string   `json:"manifest"` // digest of the overlay's manifest
	Overlay    string   `json:"overlay"`  // digest of the overlay document
	Layer      string   `json:"layer,omitempty"`
	Generation uint64   `json:"generation"`
	Expires    int64    `json:"expires"`           // seconds since 1970
	Match      Match    `json:"match,omitzero"`    // the machines that the overlay is bound to, and its other tags
	Size       int64    `json:"size"`              // of the overlay document in bytes
	Before     *Content `json:"before,omitempty"`  // what the node had before
	Foreign    bool     `json:"foreign,omitempty"` // a generation of FleetIndex.Foreign gave it: the node does not go back to it
	// at most one pause, and one of the other kinds; below a rollback the freeze that it came over
	Holds []Hold `json:"holds,omitempty"`
}

// Content is an overlay without its signatures.
type Content struct {
	Overlay    string `json:"overlay"` // digest of the document
	Size       int64  `json:"size"`    // of the document in bytes
	Layer      string `json:"layer,omitempty"`
	Generation uint64 `json:"generation"` // that gave it to the node
}

// Kinds of a [Hold].
const (
	HoldPin      = "pin"      // a layer that an operator chose
	HoldFreeze   = "freeze"   // what the node has
	HoldRollback = "rollback" // what the node had
	HoldPause    = "pause"    // the node keeps what it has, and does not enforce it
)

// Hold keeps a node's content as it is, whatever the site says, until an operator
// ends it or its time is over. Signatures are renewed all the same.
type Hold struct {
	Kind   string `json:"kind"`
	Reason string `json:"reason"`
	Author string `json:"author,omitempty"`
	Since  int64  `json:"since"`           // seconds since 1970
	Until  int64  `json:"until,omitempty"` // seconds since 1970; 0 is without end
}

// Over reports whether a hold's end has come. It stays in the index until a publish.
func (h Hold) Over(now time.Time) bool { return h.Until != 0 && h.Until <= now.Unix() }
