// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"cmp"
	"time"
)

// Drift is one difference between the wanted and the present value, and at the same
// time one planned change: `plan` and `status` print the same record.
type Drift struct {
	Item   string `json:"item"`             // kind: sysctl, mounts, …
	Key    string `json:"key"`              // what of that kind: a sysctl's path, a mount's target
	From   string `json:"from"`             // what is; "" where there is nothing
	To     string `json:"to"`               // what is wanted; "" where it should go
	Action string `json:"action"`           // one of the Action constants
	Reason string `json:"reason,omitempty"` // why it cannot be done now (ActionRefuse, ActionDefer, ActionCannot)

	Since time.Time `json:"since,omitzero"`  // in a status: when it was first seen; of ActionQuarantine: when that began
	Count int       `json:"count,omitempty"` // of ActionQuarantine: how often it was corrected without success
	Rival string    `json:"rival,omitempty"` // who changed it, where there is evidence; else RivalUnknown
}

// Change is a drift seen from the publisher's side.
type Change = Drift

// Actions of a drift.
const (
	ActionAdd    = "add"    // nothing is there
	ActionChange = "change" // another value is there
	ActionRemove = "remove" // it left the config: the original comes back
	ActionRun    = "run"    // a script is due
	ActionFailed = "failed" // a script ran and failed; it is not due now
	ActionDefer  = "defer"  // cannot be done yet (interface, module or path missing)
	ActionRefuse = "refuse" // cannot be done at all on this node
	ActionCannot = "cannot" // needs a layer, and caisson did not boot this host, or a secret that this node cannot open; see Reason

	ActionReport     = "report"     // it differs, and the policy is to leave it
	ActionQuarantine = "quarantine" // it was corrected too often to be corrected once more
)

// RivalUnknown stands for who changed a setting without leaving a trace.
const RivalUnknown = "unknown"

// Disruption classes of a change, least first.
const (
	ClassNone       = "none"
	ClassLive       = "live"
	ClassService    = "service restart"
	ClassSoftReboot = "soft-reboot"
	ClassReboot     = "reboot"
	ClassKexec      = "kexec"
	ClassCold       = "cold"
)

// Status holds the output of `caisson-agent status -o json`.
type Status struct {
	APIVersion     string    `json:"apiVersion"`
	Kind           string    `json:"kind"` // KindStatus
	Node           string    `json:"node"`
	Fleet          string    `json:"fleet"`
	Mode           Mode      `json:"mode"`
	Tracking       Tracking  `json:"tracking"` // this and what follows up to activityUntil: see Axes
	TrackingSince  time.Time `json:"trackingSince,omitzero"`
	Sync           Sync      `json:"sync"`
	SyncDetail     string    `json:"syncDetail,omitempty"`
	SyncSince      time.Time `json:"syncSince,omitzero"`
	Health         Health    `json:"health"`
	HealthDetail   string    `json:"healthDetail,omitempty"` // what is worst
	HealthSince    time.Time `json:"healthSince,omitzero"`
	Activity       Activity  `json:"activity"`
	ActivityDetail string    `json:"activityDetail,omitempty"`
	ActivitySince  time.Time `json:"activitySince,omitzero"`
	ActivityUntil  time.Time `json:"activityUntil,omitzero"`
	Asked          time.Time `json:"asked,omitzero"`   // when the registry was last asked
	Expires        time.Time `json:"expires,omitzero"` // of the overlay's signature
	Source         Source    `json:"source"`           // of this boot's overlay
	Epoch          uint64    `json:"epoch"`
	Generation     uint64    `json:"generation"`
	Overlay        string    `json:"overlay"` // digest
	Layer          string    `json:"layer"`   // digest of the stacked layer's manifest
	LayerVersion   string    `json:"layerVersion,omitempty"`
	Image          string    `json:"image,omitempty"`     // IMAGE_VERSION of the running root's os-release
	Agent          string    `json:"agent,omitempty"`     // version of the agent that answers
	Recipient      string    `json:"recipient,omitempty"` // what secrets are sealed to for this node; none without a state disk
	Sealed         bool      `json:"sealed,omitempty"`    // that key is sealed to the machine's TPM, and on no disk as it is
	Pause          *Pause    `json:"pause,omitempty"`     // drift is reported and stays
	// overlay digest that waits for a reboot; that in effect where its layer alone waits; none on an
	// attached host
	Staged      string            `json:"staged,omitempty"`
	StagedBytes *Bytes            `json:"stagedBytes,omitempty"` // of its layer, where this service fetched any
	Rejected    *Rejected         `json:"rejected,omitempty"`    // what is not tried again here until somebody says so
	Checks      []CheckStatus     `json:"checks,omitempty"`      // of a change that has to pass its gates yet
	RootID      string            `json:"rootId"`
	BootID      string            `json:"bootId"`
	Floor       Floor             `json:"floor"`
	Items       []ItemStatus      `json:"items"`
	Drift       []Drift           `json:"drift"`
	Operations  []OperationStatus `json:"operations,omitempty"`
	Services    []ServiceStatus   `json:"services,omitempty"`
	// files in the upper that caisson did not write; with a slash at its end a directory with many of
	// them
	Foreign []string `json:"foreign,omitempty"`
	// paths of keys of a later release, which do not act: the overlay's, and after its name those of
	// fleet:current
	LeftOut []string `json:"leftOut,omitempty"`

	TrackingDetail string    `json:"trackingDetail,omitempty"` // who has the node keep what it has, and why
	TrackingUntil  time.Time `json:"trackingUntil,omitzero"`
	PausedBy       string    `json:"pausedBy,omitempty"`
	Trial          *Trial    `json:"trial,omitempty"`

	// how what is read of the layer's images is compared with what was signed; none on an attached
	// host
	ImageCheck       ImageCheck `json:"imageCheck,omitempty"`
	ImageCheckDetail string     `json:"imageCheckDetail,omitempty"` // why they are not checked when they are read

	Rescue *RescueStatus `json:"rescue,omitempty"` // who is let in, and by which code the next one is

	Protected []string       `json:"protected,omitempty"` // kernel parameters of which the kernel refuses writes
	Refused   []RefusedWrite `json:"refused,omitempty"`   // what it has refused since the machine started, the latest last

	Keys *KeysKnown `json:"keys,omitempty"` // none where the node's boot files begin no chain of keys
}

// KeysKnown is which versions of fleet:keys a node knows.
type KeysKnown struct {
	Version   uint64 `json:"version"`           // that counts
	BootFiles uint64 `json:"bootFiles"`         // that its boot files were written with
	Forgets   bool   `json:"forgets,omitempty"` // it keeps nothing over a boot: what its boot files say is all that it begins with
}

// Behind reports whether the next boot of a node could be led to obey keys of an earlier
// version than the newest.
func (k *KeysKnown) Behind(newest uint64) bool {
	return k.Version < newest || k.Forgets && k.BootFiles < newest
}

// RefusedWrite is a write of a protected kernel parameter that the kernel has refused.
type RefusedWrite struct {
	Key   string    `json:"key"`
	Value string    `json:"value"` // that was to be written; what is long is cut off
	Rival string    `json:"rival"` // who tried it last
	Count int       `json:"count"` // how often this program has tried to write this parameter
	At    time.Time `json:"at"`    // the last time
}

// Trial is a generation that is in effect until it is confirmed, or that was undone
// since it was not.
type Trial struct {
	Generation uint64    `json:"generation"`
	Overlay    string    `json:"overlay"`
	Confirm    string    `json:"confirm"` // reach: by itself, operator: by caisson-agent confirm
	Since      time.Time `json:"since"`
	Left       int64     `json:"left,omitempty"`   // seconds that an operator has
	Undone     string    `json:"undone,omitempty"` // why it was undone; "" where there is no outcome yet
}

// Rejected is a generation that failed on a node.
type Rejected struct {
	Generation uint64    `json:"generation"`
	Overlay    string    `json:"overlay"`
	Reason     string    `json:"reason"`
	At         time.Time `json:"at,omitzero"`
}

// CheckStatus is one health check of a change that is being judged.
type CheckStatus struct {
	Name     string `json:"name"`
	Holds    bool   `json:"holds"`
	Failures int64  `json:"failures"` // so far
	Retries  int64  `json:"retries"`  // failures that are waited out
	Detail   string `json:"detail,omitempty"`
}

// Floor is the least (epoch, generation) the node still accepts.
type Floor struct {
	Epoch      uint64 `json:"epoch"`
	Generation uint64 `json:"generation"`
}

// Compare returns less than 0 where f was published before another, and more than 0 where it was after it.
func (f Floor) Compare(other Floor) int {
	return cmp.Or(cmp.Compare(f.Epoch, other.Epoch), cmp.Compare(f.Generation, other.Generation))
}

// ItemStatus is the result of one kind in the last run.
type ItemStatus struct {
	Name    string    `json:"name"`
	State   ItemState `json:"state"`
	Applied int       `json:"applied"` // settings that are as wanted
	Error   string    `json:"error,omitempty"`
	Hints   []string  `json:"hints,omitempty"` // what tells the service of changes between two looks
}

// Axes are the four respects in which a node stands somewhere, each by itself: a
// node may be frozen, behind, ok and idle at once. Status and reports have them.
type Axes struct {
	Tracking Axis `json:"tracking"` // one of the Tracking constants
	Sync     Axis `json:"sync"`     // one of the Sync constants, or refused:CODE
	Health   Axis `json:"health"`   // one of the Health constants
	Activity Axis `json:"activity"` // one of the Activity constants, waiting:WHAT or running:OPERATION
}

// Axis is one of them.
type Axis struct {
	State  string    `json:"state"`
	Detail string    `json:"detail,omitempty"` // why it is so
	Since  time.Time `json:"since,omitzero"`   // unknown when zero
	Until  time.Time `json:"until,omitzero"`   // when it ends by itself; zero where it does not
}

// Axes returns where the node of a status stands.
func (s *Status) Axes() Axes {
	return Axes{
		Tracking: Axis{State: string(s.Tracking), Detail: s.TrackingDetail, Since: s.TrackingSince, Until: s.TrackingUntil},
		Sync:     Axis{State: string(s.Sync), Detail: s.SyncDetail, Since: s.SyncSince},
		Health:   Axis{State: string(s.Health), Detail: s.HealthDetail, Since: s.HealthSince},
		Activity: Axis{State: string(s.Activity), Detail: s.ActivityDetail, Since: s.ActivitySince, Until: s.ActivityUntil},
	}
}

// Activity names the present work of a node.
type Activity string

// Values of the activity axis, besides [ActivityWaiting] and [ActivityRunning].
const (
	ActivityIdle    Activity = "idle"
	ActivityStaging Activity = "staging" // it fetches a layer for its next boot
	ActivitySoaking Activity = "soaking" // a change has to pass its gates yet
)

// ActivityWaiting is the activity of a node that has something to do and may not
// yet; what is resume, reboot, or one of the For constants of an operation that waits.
func ActivityWaiting(what string) Activity { return Activity("waiting:" + what) }

// Unproved reports whether what a node runs is a change that it may yet undo by itself.
func (a Axes) Unproved() bool {
	is := Activity(a.Activity.State)
	return is == ActivitySoaking || is == ActivityWaiting("confirm")
}

// ActivityRunning is the activity of a node that runs an operation.
func ActivityRunning(operation string) Activity { return Activity("running:" + operation) }
