// SPDX-License-Identifier: Apache-2.0

package spec

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
