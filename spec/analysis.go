// SPDX-License-Identifier: Apache-2.0

package spec

// Analysis compares nodes that a rollout moved with others, by what a Prometheus measured.
type Analysis struct {
	Query   string `json:"query"`             // PromQL: each series of its answer is one node's
	Label   string `json:"label"`             // of a series, whose value is the name of its node; a port behind it is cut off
	Of      string `json:"of"`                // OfWave or OfGroup
	Against string `json:"against,omitempty"` // AgainstRest; absent: Worse is a value
	Worse   string `json:"worse"`             // as in "> 1.2 ×" the mean of the others, or "> 0.05"
	For     int64  `json:"for"`               // seconds, at most those of the soak: the time that is looked at
	AtLeast int    `json:"atLeast"`           // so many nodes of either side must have a value
}

// Words of an [Analysis].
const (
	OfWave      = "wave"  // all nodes of the wave that runs
	OfGroup     = "group" // of that wave, those of each group of a budget by themselves
	AgainstRest = "rest"  // the nodes of the plan that have not moved
)
