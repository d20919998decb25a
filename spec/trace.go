// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"fmt"
	"time"
)

// Trace is how long each step took of what made a node as it is: of its boot, of the
// first run of its agent and of the last one. Times of steps count from the start of
// the kernel, since a boot may set the clock.
type Trace struct {
	Node    string    `json:"node"`
	BootID  string    `json:"bootId"`
	Started time.Time `json:"started"`         // of the kernel, by the clock as it is now
	Boot    []Step    `json:"boot,omitempty"`  // of the loader; none on a host that caisson did not boot
	First   []Step    `json:"first,omitempty"` // the agent's first run on this root
	Last    []Step    `json:"last,omitempty"`  // its last one, where that is another
}

// Step is one of them.
type Step struct {
	Name   string  `json:"name"`
	Start  float64 `json:"start"` // milliseconds since the kernel started
	Took   float64 `json:"took"`  // milliseconds
	Result string  `json:"result"`
	Bytes  *Bytes  `json:"bytes,omitempty"` // of a step that brings content
}

// Bytes is how the content of a layer came to a node.
type Bytes struct {
	Fetched int64 `json:"fetched"` // from the network
	Had     int64 `json:"had"`     // from what the node had: older images, and attempts that were cut
}

func (b Bytes) String() string {
	return fmt.Sprintf("%.1f MB fetched, %.1f MB were here", float64(b.Fetched)/1e6, float64(b.Had)/1e6)
}

// StepOK is the result of a step that did what it should; another one says what was
// wrong.
const StepOK = "ok"
