// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"slices"
	"time"
)

// Mode is how a node got the root that it runs.
type Mode string

// Modes of a node.
const (
	ModeNetboot  Mode = "netboot"  // a loader fetched it
	ModeDisk     Mode = "disk"     // a disk image brought the loader
	ModeAttached Mode = "attached" // caisson did not boot this host: runtime items only
)

// Tracking names the way a node treats new generations.
type Tracking string

// Values of the tracking axis.
const (
	Following Tracking = "following" // takes the newest
	Frozen    Tracking = "frozen"    // keeps what it has, and reports what there would be
	Held      Tracking = "held"      // keeps what it was brought back to, as frozen does; a state never says so
)

// Sync compares the overlay that a node runs with that of the registry.
type Sync string

// Values of the sync axis, besides [SyncRefused].
const (
	SyncCurrent     Sync = "current"
	SyncBehind      Sync = "behind"      // something newer waits, or could not be applied
	SyncUnreachable Sync = "unreachable" // the registry did not answer
	SyncExpired     Sync = "expired"     // current, but the overlay's signature has expired
	SyncUnconfirmed Sync = "unconfirmed" // current, but fleet:current is missing or has expired
)

// SyncRefused is the sync axis of a node that refused the registry's overlay; code
// is a refusal code.
func SyncRefused(code string) Sync { return Sync("refused:" + code) }

// Health says whether a node is as its overlay says.
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

// Health returns the health of a node with a kind in a state.
func (s ItemState) Health() Health {
	switch s {
	case ItemDegraded:
		return HealthDegraded
	case ItemQuarantined:
		return HealthQuarantined
	}
	return HealthOK
}

// Event is one record of a node's black box: what was tried, and why it
// ended otherwise than it should.
type Event struct {
	Time       time.Time `json:"time"` // by the clock as it was then
	Boot       string    `json:"boot"` // id of the boot that noted it
	Of         string    `json:"of,omitempty"`
	Event      string    `json:"event"`                // one of the Event constants
	Transition string    `json:"transition,omitempty"` // what was decided, a name of docs/decisions.md
	Generation uint64    `json:"generation,omitempty"`
	Epoch      uint64    `json:"epoch,omitempty"`
	Overlay    string    `json:"overlay,omitempty"`
	Layer      string    `json:"layer,omitempty"`
	Item       string    `json:"item,omitempty"`  // kind of what failed
	Key        string    `json:"key,omitempty"`   // what of that kind
	Errno      string    `json:"errno,omitempty"` // what the kernel said, such as ENOENT
	Code       string    `json:"code,omitempty"`  // of a refusal
	Why        string    `json:"why,omitempty"`
	Did        string    `json:"did,omitempty"`     // what the node did about it
	Console    []string  `json:"console,omitempty"` // the kernel's last lines then
}

// Events of a node, first those of its loader.
const (
	EventKexec    = "kexec"     // another kernel was entered
	EventEntered  = "entered"   // the layer was entered
	EventAsked    = "asked"     // the registry was asked, and what it had could not be run
	EventFellBack = "fell-back" // the last good generation was run
	EventGaveUp   = "gave-up"   // the loader started the machine over
	EventLost     = "lost"      // the boot before ended before its agent had applied anything, and said no word
	EventCrashed  = "crashed"   // the kernel of a boot before died; its last lines outlived it

	EventUp         = "up"          // the agent has applied what the loader entered
	EventDeadline   = "deadline"    // a new generation did not prove itself in time
	EventRefused    = "refused"     // what the registry had was not accepted
	EventTakenBack  = "taken-back"  // a change failed while it was applied
	EventOverdue    = "overdue"     // a change was not made in time, and its agent ended with it
	EventHung       = "hung"        // a look at what runs did not end, and its agent ended with it
	EventUndone     = "undone"      // a change cut the node off, or nobody confirmed it
	EventCompared   = "compared"    // what ran before has shown whether a change cut the node off
	EventGateFailed = "gate-failed" // a change did not pass its health checks
	EventLeft       = "left"        // the machine was started over into what proved itself, which needs another root
	EventCorrupt    = "corrupt"     // a block of an image was read that is not what was signed
)

// Why holds the output of `caisson-agent why -o json`: the faults of a node, worst first,
// and the content of its black box.
type Why struct {
	APIVersion   string    `json:"apiVersion"`
	Kind         string    `json:"kind"` // KindWhy
	Node         string    `json:"node"`
	Fleet        string    `json:"fleet"`
	Health       Health    `json:"health"`
	Sync         Sync      `json:"sync"`
	Generation   uint64    `json:"generation"`      // that runs
	Layer        string    `json:"layer,omitempty"` // digest, of what runs
	LayerVersion string    `json:"layerVersion,omitempty"`
	Well         bool      `json:"well"` // nothing is wrong
	Findings     []Finding `json:"findings"`
	Last         *Event    `json:"last,omitempty"`    // the last event that tells of something that failed
	Memory       bool      `json:"memory,omitempty"`  // the black box ends with this boot
	Trouble      string    `json:"trouble,omitempty"` // why the black box could not be read
	Events       []Event   `json:"events"`            // all that it has, oldest first
}

// Finding is one thing that is wrong with a node.
type Finding struct {
	What       string    `json:"what"`
	Reason     string    `json:"reason"`
	Since      time.Time `json:"since,omitzero"`
	Generation uint64    `json:"generation,omitempty"`
	Overlay    string    `json:"overlay,omitempty"`
	Layer      string    `json:"layer,omitempty"`
	Item       string    `json:"item,omitempty"`
	Key        string    `json:"key,omitempty"`
	Errno      string    `json:"errno,omitempty"`
	Code       string    `json:"code,omitempty"`       // of a refusal
	Transition string    `json:"transition,omitempty"` // what was decided, a name of docs/decisions.md
	Did        string    `json:"did"`                  // what the node did about it
	Do         string    `json:"do"`                   // what a person can do now
	Console    []string  `json:"console,omitempty"`    // the kernel's last lines then
}
