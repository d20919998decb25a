// SPDX-License-Identifier: Apache-2.0

package spec

import "time"

// Event is one thing that a node noted in its black box: what was tried, and why it
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

// Why is what `caisson-agent why -o json` prints: what is wrong with a node, worst first,
// and what its black box has.
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
