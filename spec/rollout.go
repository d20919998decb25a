// SPDX-License-Identifier: Apache-2.0

package spec

// KindRolloutPlan is the kind of [RolloutPlan].
const KindRolloutPlan = "RolloutPlan"

// RolloutPlan holds the steps of a rollout: which nodes get which overlays, in which
// waves, and when it stops. It does not change once it is signed; how far it is, is a
// [Rollout] in the index.
type RolloutPlan struct {
	APIVersion string      `json:"apiVersion"`
	Kind       string      `json:"kind"` // KindRolloutPlan
	Fleet      string      `json:"fleet"`
	Name       string      `json:"name"`
	At         int64       `json:"at"`                  // seconds since 1970: the date that the site was compiled for
	Before     Floor       `json:"before"`              // generation that nodes go back to
	Reference  string      `json:"reference,omitempty"` // digest by which its layers are found
	Named      bool        `json:"named,omitempty"`     // an operator named it: the layers may be older than what nodes have
	Layers     []string    `json:"layers,omitempty"`    // digests that it brings and that no node of the fleet had, sorted
	Waves      []Wave      `json:"waves"`
	Rule       RolloutRule `json:"rule"`

	Budget *RolloutBudget `json:"budget,omitempty"` // within a wave so many nodes move at once; all of them when absent
}

// RolloutBudget says how many nodes may be unavailable at once. A node of which it is not
// proved that it is well counts as unavailable.
type RolloutBudget struct {
	Per     string            `json:"per,omitempty"`     // label whose values are the groups
	Each    int               `json:"each,omitempty"`    // nodes of a group; as many as of all when absent
	Overall int               `json:"overall,omitempty"` // nodes of all; without a bound when absent
	Nodes   map[string]string `json:"nodes"`             // node → its group: all nodes that count, also those that do not change
}

// Wave is one step of a [RolloutPlan].
type Wave struct {
	Name  string            `json:"name"`
	Nodes map[string]string `json:"nodes"` // node → digest of its overlay
}

// RolloutRule says how a rollout judges its waves. Times are seconds.
type RolloutRule struct {
	Soak     int64  `json:"soak"`              // seconds for which the nodes of a wave must be healthy
	Deadline int64  `json:"deadline"`          // after which a node that does not report the new overlay has failed
	Silence  int64  `json:"silence"`           // a node that said nothing for so long before its wave is left out
	Count    int    `json:"count,omitempty"`   // a wave with so many failures halts the rollout;
	Percent  int    `json:"percent,omitempty"` // or with so many of a hundred. The first failure where both are 0
	Undo     string `json:"undo"`              // UndoWave, UndoAll or UndoNone
	Grade    string `json:"grade,omitempty"`   // of the reports that count: GradePinned, GradeAttested; of any node's key when empty

	// what of a change must have been rehearsed before nodes get it: RehearsedLayer or
	// RehearsedSettings; nothing when empty
	Rehearsed string     `json:"rehearsed,omitempty"`
	Analysis  []Analysis `json:"analysis,omitempty"` // each halts the rollout where it finds the nodes that moved worse
}

// What of a change must have been rehearsed. A driver that does not know the word of a plan
// refuses the plan.
const (
	RehearsedLayer    = "layer"    // the change from one layer to another, with whatever settings
	RehearsedSettings = "settings" // both, layers and settings
)

// GradePinned lets only reports by keys that outlive a boot count. A driver that does not
// know the word of a plan refuses the plan.
const GradePinned = "pinned"

// GradeAttested lets only reports count whose node attested the overlay that it runs.
const GradeAttested = "attested"

// What goes back when a rollout halts.
const (
	UndoWave = "wave" // the wave that failed
	UndoAll  = "all"  // every wave that began
	UndoNone = "none"
)

// Phases of a [Rollout].
const (
	RolloutRunning = "running"
	RolloutPaused  = "paused"  // an operator stopped it
	RolloutHalted  = "halted"  // it stopped itself
	RolloutAborted = "aborted" // ended where it was
	RolloutUndone  = "undone"  // ended, and everything went back
	RolloutDone    = "done"
)

// Rollout is the row of a rollout in a [FleetIndex]: how far it is.
type Rollout struct {
	Plan   string        `json:"plan"` // digest of the plan's manifest in the repository of the fleet
	Phase  string        `json:"phase"`
	Since  int64         `json:"since"` // of the phase, seconds since 1970
	Author string        `json:"author,omitempty"`
	Reason string        `json:"reason,omitempty"`
	Waves  []RolloutWave `json:"waves,omitempty"` // those that began
}

// RolloutWave is a wave that began.
type RolloutWave struct {
	Begun   int64             `json:"begun"`             // seconds since 1970
	Done    int64             `json:"done,omitempty"`    // seconds since 1970
	Back    int64             `json:"back,omitempty"`    // when its nodes got what they had before, seconds since 1970
	LeftOut map[string]string `json:"leftOut,omitempty"` // node → why
	Failed  map[string]string `json:"failed,omitempty"`  // node → why
	Stayed  map[string]string `json:"stayed,omitempty"`  // node → why it did not go back with the others
	Moving  map[string]int64  `json:"moving,omitempty"`  // of a plan with a budget: node that is not proved → since when, seconds since 1970
}

// Ended reports whether nothing will come of it any more. A halted rollout has not
// ended: an operator decides.
func (r Rollout) Ended() bool {
	return r.Phase == RolloutAborted || r.Phase == RolloutUndone || r.Phase == RolloutDone
}
