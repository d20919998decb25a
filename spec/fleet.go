// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

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

	// since 0.10.0: newest version of fleet:keys; a node that has a chain and cannot get it accepts nothing new
	KeysVersion uint64   `json:"keysVersion,omitempty"`
	Loaders     []Loader `json:"loaders,omitempty"` // since 0.10.0: what disks start, one an architecture, sorted by it
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
	// since 0.10.0: while Reserved: nodes whose tags Generation may move, sorted; nil where they are too many to name
	Moves []string `json:"moves,omitzero"`
	// since 0.10.0: generations that a revocation met and its publisher had not given out: no node goes back to them
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
	Commit    string `json:"commit,omitempty"` // since 0.10.0: of the site, with a "+" behind it where the site differs from it
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
	Expires    int64    `json:"expires"`          // seconds since 1970
	Match      Match    `json:"match,omitzero"`   // the machines that the overlay is bound to, and its other tags
	Size       int64    `json:"size"`             // of the overlay document in bytes
	Before     *Content `json:"before,omitempty"` // what the node had before
	// since 0.10.0: a generation of FleetIndex.Foreign gave it: the node does not go back to it
	Foreign bool `json:"foreign,omitempty"`
	// at most one pause, and one of the other kinds; below a rollback the freeze that it came over
	Holds []Hold `json:"holds,omitempty"`
}

// Content returns what the node has.
func (p *Published) Content() *Content {
	return &Content{Overlay: p.Overlay, Size: p.Size, Layer: p.Layer, Generation: p.Generation}
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

	Budget *RolloutBudget `json:"budget,omitempty"` // since 0.10.0: within a wave so many nodes move at once; all of them when absent
}

// Gives returns the digest of the overlay that a plan has for a node.
func (p *RolloutPlan) Gives(node string) string {
	for _, w := range p.Waves {
		if digest := w.Nodes[node]; digest != "" {
			return digest
		}
	}
	return ""
}

// Size is how many nodes the plan is for.
func (p *RolloutPlan) Size() (n int) {
	for _, w := range p.Waves {
		n += len(w.Nodes)
	}
	return n
}

// RolloutBudget says how many nodes may be unavailable at once. A node of which it is not
// proved that it is well counts as unavailable.
type RolloutBudget struct {
	Per     string            `json:"per,omitempty"`     // label whose values are the groups
	Each    int               `json:"each,omitempty"`    // nodes of a group; as many as of all when absent
	Overall int               `json:"overall,omitempty"` // nodes of all; without a bound when absent
	Nodes   map[string]string `json:"nodes"`             // node → its group: all nodes that count, also those that do not change
}

// AtOnce is how many of so many nodes of a group may be unavailable at once.
func (b *RolloutBudget) AtOnce(size int) int {
	for _, bound := range []int{b.Each, b.Overall} {
		if bound > 0 {
			size = min(size, bound)
		}
	}
	return size
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

	// since 0.10.0: what of a change must have been rehearsed before nodes get it: RehearsedLayer or
	// RehearsedSettings; nothing when empty
	Rehearsed string     `json:"rehearsed,omitempty"`
	Analysis  []Analysis `json:"analysis,omitempty"` // since 0.10.0: each halts the rollout where it finds the nodes that moved worse
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
	// since 0.10.0: of a plan with a budget: node that is not proved → since when, seconds since 1970
	Moving map[string]int64 `json:"moving,omitempty"`
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
	Against string `json:"against,omitempty" enum:"rest" doc:"rest compares with the mean of nodes that have not moved; else worse is a value"`
	Worse   string `json:"worse" site:",required" doc:"when the mean of moved nodes is worse, as in \"> 1.2 ×\" the others', or \"> 0.05\""`
	// seconds, at most those of the soak
	For int64 `json:"for" site:",duration" doc:"how long it must be worse to halt, and not worse to pass; at most soak; soak when absent"`
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
