// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"crypto/sha256"
	"encoding/binary"
)

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

// Analysis compares nodes that a rollout moved with others, by what a Prometheus measured.
type Analysis struct {
	Query string `json:"query" site:",required" doc:"PromQL; each series of the answer is one node's"`
	// of a series, whose value is the name of its node; a port behind it is cut off
	Label string `json:"label" doc:"label of a series whose value is the node's name, a port behind it cut off; instance when absent"`
	// OfWave or OfGroup
	Of      string `json:"of" enum:"wave,group" doc:"group compares each group of the strategy by itself; wave when absent"`
	Against string `json:"against,omitempty" enum:"rest" doc:"rest compares with the mean of the nodes that have not moved; without it worse is a value"`
	Worse   string `json:"worse" site:",required" doc:"when the mean of the nodes that moved is worse, as in \"> 1.2 ×\" that of the others, or \"> 0.05\""`
	// seconds, at most those of the soak
	For int64 `json:"for" site:",duration" doc:"how long it must be worse to halt the rollout, and not worse to pass; at most soak, and as long when absent"`
	// so many nodes of either side must have a value
	AtLeast int `json:"atLeast" doc:"so many nodes of each side must have a value; 1 when absent"`
}

// Words of an [Analysis].
const (
	OfWave      = "wave"  // all nodes of the wave that runs
	OfGroup     = "group" // of that wave, those of each group of a budget by themselves
	AgainstRest = "rest"  // the nodes of the plan that have not moved
)

// Approvals say with which content of registers a TPM opens what is sealed to a key: the section
// .pcrsig of a loader, in systemd's form, see systemd-measure(1). The stub leaves that section out of the
// register, and passes it on as [ApprovalsFile].
type Approvals struct {
	SHA256 []Approval `json:"sha256"`
}

// Approval is signed by one key, of one content of registers.
type Approval struct {
	Registers []uint `json:"pcrs"`
	Key       string `json:"pkfp"` // SHA-256 of the key's PKIX, hexadecimal
	Policy    string `json:"pol"`  // digest of TPM2_PolicyPCR over them, hexadecimal, see [RegisterPolicy]
	Signature []byte `json:"sig"`  // of the digest's bytes: PKCS #1 v1.5 with SHA-256
}

// Sections of a loader, and where the stub puts them in its initramfs.
const (
	ApprovalsSection   = ".pcrsig"
	ApprovalKeySection = ".pcrpkey" // PEM of a PKIX, which the stub measures
	ApprovalsFile      = "/.extra/tpm2-pcr-signature.json"
	ApprovalKeyFile    = "/.extra/tpm2-pcr-public-key.pem"
)

// RegisterPolicy returns the digest of TPM2_PolicyPCR over one register of SHA-256 below 24 with a content, see
// "TPM 2.0 Library", part 3.
func RegisterPolicy(register uint, content [sha256.Size]byte) [sha256.Size]byte {
	const command, algorithm = 0x17f, 0x0b // TPM_CC_PolicyPCR, TPM_ALG_SHA256
	said := binary.BigEndian.AppendUint32(make([]byte, sha256.Size), command)
	said = binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint32(said, 1), algorithm)
	selected := [3]byte{}
	selected[register/8] = 1 << (register % 8)
	said = append(append(said, byte(len(selected))), selected[:]...)
	values := sha256.Sum256(content[:])
	return sha256.Sum256(append(said, values[:]...))
}
