// SPDX-License-Identifier: Apache-2.0

package spec

import "slices"

// Mode is how a node got the root that it runs.
type Mode string

// Modes of a node.
const (
	ModeNetboot  Mode = "netboot"  // a loader fetched it
	ModeDisk     Mode = "disk"     // a disk image brought the loader
	ModeAttached Mode = "attached" // caisson did not boot this host: runtime items only
)

// Tracking is what a node does with new generations.
type Tracking string

// Values of the tracking axis.
const (
	Following Tracking = "following" // takes the newest
	Frozen    Tracking = "frozen"    // keeps what it has, and reports what there would be
	Held      Tracking = "held"      // keeps what it was brought back to, as frozen does; a state never says so
)

// Sync is how what a node runs compares with what the registry has.
type Sync string

// Values of the sync axis, besides [SyncRefused].
const (
	SyncCurrent     Sync = "current"
	SyncBehind      Sync = "behind"      // something newer waits, or could not be applied
	SyncUnreachable Sync = "unreachable" // the registry did not answer
	SyncExpired     Sync = "expired"     // current, but the overlay's signature has expired
	SyncUnconfirmed Sync = "unconfirmed" // current, but fleet:current is missing or has expired
)

// SyncRefused is the sync axis of a node that refused what the registry has; code
// is a refusal code.
func SyncRefused(code string) Sync { return Sync("refused:" + code) }

// Health is whether a node is as its overlay says.
type Health string

// Values of the health axis.
const (
	HealthOK          Health = "ok"
	HealthDegraded    Health = "degraded"    // something is not as the overlay says
	HealthQuarantined Health = "quarantined" // somebody changes a setting again and again; the agent has stopped correcting it
	HealthBroken      Health = "broken"      // what it runs did not pass its gates, and there is nothing to go back to
)

// healths are those of a node, best first.
var healths = []Health{HealthOK, HealthDegraded, HealthQuarantined, HealthBroken}

// And returns the worse of two.
func (h Health) And(other Health) Health {
	if slices.Index(healths, other) > slices.Index(healths, h) {
		return other
	}
	return h
}

// ImageCheck is when a node compares the layer's images with what was signed.
type ImageCheck string

// Values of an image check.
const (
	ImagesWhenRead ImageCheck = "read" // each block when it is read, by dm-verity
	ImagesAtBoot   ImageCheck = "boot" // whole, when the boot began
)

// Source is where the overlay of a boot came from.
type Source string

// Sources of an overlay.
const (
	SourceFetched Source = "fetched" // from the registry
	SourceCached  Source = "cached"  // from the state directory
)

// ItemState is the result of one kind in a run.
type ItemState string

// States of a kind.
const (
	ItemOK       ItemState = "ok"
	ItemDeferred ItemState = "deferred" // something is not there yet; it is tried again
	ItemDegraded ItemState = "degraded"

	ItemQuarantined ItemState = "quarantined" // a setting of it is not corrected any more
)

// Health is what a kind in a state makes of a node.
func (s ItemState) Health() Health {
	switch s {
	case ItemDegraded:
		return HealthDegraded
	case ItemQuarantined:
		return HealthQuarantined
	}
	return HealthOK
}
