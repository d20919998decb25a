// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/caisson-os/caisson/fleet/audit"
)

// Seen is a fleet at a time.
type Seen struct {
	At       time.Time
	Nodes    map[string]Is     // by name
	Rollouts map[string]string // phase by name
	Acts     []audit.Row       // since the time before
}

// Is is the condition of a node, as `caisson fleet status` has it.
type Is struct{ Condition, Why string }

// Fleet is what is watched.
type Fleet interface {
	Writes() bool    // this instance is the one that tells
	Elsewhere() bool // another one is; neither is one while the database is away
	// See returns the fleet as it is, the rows of the audit log after one, and the last row; below 0
	// no rows are wanted.
	See(ctx context.Context, after int64) (now Seen, last int64, err error)
}

// Watch compares a fleet with what it was at each tick, until ctx ends. What it was before the start
// is not known, and not told.
func Watch(ctx context.Context, f Fleet, to []*Receiver, ticks <-chan time.Time, say func(format string, args ...any)) {
	for _, r := range to {
		go r.Run(ctx)
	}
	before, last := Seen{}, int64(-1)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticks:
		}
		if !f.Writes() {
			if f.Elsewhere() {
				last = -1
			}
			continue
		}
		now, seq, err := f.See(ctx, last)
		if err != nil {
			say("webhook: %v", err)
			continue
		}
		if last >= 0 {
			tell(to, Changes(before, now), say)
		}
		before, last = now, seq
	}
}

func tell(to []*Receiver, events []Event, say func(format string, args ...any)) {
	for _, e := range events {
		for _, r := range to {
			if err := r.Tell(e); err != nil {
				say("%v", err)
			}
		}
	}
}

// changed is a node in nodes.changed.
type changed struct {
	Node string `json:"node"`
	From string `json:"from"` // "" is a new node
	To   string `json:"to"`   // "" is one that is gone
	Why  string `json:"why,omitempty"`
}

// mostListed is how many nodes or rows one event lists: all of a hall may change in one moment.
const mostListed = 100

// Changes returns what differs between two times: at most one event of each type.
//
//	nodes.changed    {changed: [{node, from, to, why}], more, conditions: {condition: nodes}}
//	rollout.changed  {changed: [{rollout, from, to}]}
//	audit.added      {rows: [rows of the audit log], more}
func Changes(before, now Seen) (events []Event) {
	say := func(kind string, data any) {
		events = append(events, Event{kind, now.At.UTC().Truncate(time.Second), data})
	}
	if nodes, conditions := compareNodes(before, now); len(nodes) > 0 {
		say("nodes.changed", map[string]any{"changed": nodes[:min(len(nodes), mostListed)],
			"more": max(0, len(nodes)-mostListed), "conditions": conditions})
	}
	var moved []map[string]string
	for _, name := range names(before.Rollouts, now.Rollouts) {
		if from, to := before.Rollouts[name], now.Rollouts[name]; from != to {
			moved = append(moved, map[string]string{"rollout": name, "from": from, "to": to})
		}
	}
	if len(moved) > 0 {
		say("rollout.changed", map[string]any{"changed": moved})
	}
	if n := len(now.Acts); n > 0 {
		say("audit.added", map[string]any{"rows": now.Acts[:min(n, mostListed)], "more": max(0, n-mostListed)})
	}
	return events
}

func compareNodes(before, now Seen) (all []changed, conditions map[string]int) {
	conditions = map[string]int{}
	for _, is := range now.Nodes {
		conditions[is.Condition]++
	}
	for _, name := range names(before.Nodes, now.Nodes) {
		if was, is := before.Nodes[name], now.Nodes[name]; was.Condition != is.Condition {
			all = append(all, changed{name, was.Condition, is.Condition, is.Why})
		}
	}
	return all, conditions
}

// names lists the keys of two maps, sorted.
func names[T any](a, b map[string]T) []string {
	return slices.Compact(slices.Sorted(func(yield func(string) bool) {
		for _, m := range []map[string]T{a, b} {
			for name := range maps.Keys(m) {
				if !yield(name) {
					return
				}
			}
		}
	}))
}
