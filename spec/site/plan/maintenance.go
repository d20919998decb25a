// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// disruption returns when something disturbs a node next, nil when nothing is known to.
// What was published before and runs once is taken to have run.
func disruption(from, to *spec.Maintenance, now time.Time) *Turn {
	if to == nil || now.IsZero() {
		return nil
	}
	from = cmp.Or(from, &spec.Maintenance{})
	published := plain.Map(from.Operations, func(o spec.Operation) (string, bool) { return o.ID, true })
	var first *Turn
	for _, o := range to.Operations {
		if !o.Disruptive || o.Type == spec.OneShot && published[o.ID] {
			continue
		}
		run := func(from time.Time) (time.Time, bool) { return nextRun(o, from) }
		next := soonest(to, o.Name, o.Windows, now, run)
		if at, ok := run(now); ok && len(o.Windows) == 0 {
			next = &Turn{Operation: o.Name, From: at}
		}
		if next != nil && (first == nil || next.From.Before(first.From)) {
			first = next
		}
	}
	return first
}

// nextRun returns when an operation may run from a time on.
func nextRun(o spec.Operation, from time.Time) (time.Time, bool) {
	if o.Type != spec.Cron {
		return from, true
	}
	at := plain.First(o.Runs, func(at time.Time) bool { return !at.Before(from) })
	return at, !at.IsZero()
}

// Terms holds the terms that a publish signs beside overlays. Who agrees to a plan agrees to them.
type Terms struct {
	Registry  string         `json:"registry"`  // where it is pushed
	Lifetime  int64          `json:"lifetime"`  // of signatures, in seconds
	Threshold int            `json:"threshold"` // keys that have to sign
	Rollouts  []RolloutTerms `json:"rollouts"`
}

// RolloutTerms are a Rollout of the site, by which caisson-kube publishes, and 'caisson rollout'.
type RolloutTerms struct {
	Name  string           `json:"name"`
	Rule  spec.RolloutRule `json:"rule"`
	Waves []WaveTerms      `json:"waves"` // if all of its nodes changed

	Budget *spec.RolloutBudget `json:"budget,omitempty"` // nil: the nodes of a wave move together
}

// WaveTerms are the nodes of one wave.
type WaveTerms struct {
	Name  string   `json:"name"`
	Nodes []string `json:"nodes"`
}

func (t *Terms) write(w io.Writer) {
	life := plain.Duration(time.Duration(t.Lifetime) * time.Second)
	if days := t.Lifetime / (24 * 60 * 60); days > 0 && t.Lifetime%(24*60*60) == 0 {
		life = plain.Count(int(days), "day")
	}
	fmt.Fprintf(w, "to be signed by %s, for %s, in %s\n", plain.Count(t.Threshold, "key"), life, t.Registry)
	for _, r := range t.Rollouts {
		waves := plain.Each(r.Waves, func(one WaveTerms) string { return fmt.Sprintf("%s (%s)", one.Name, plain.Some(one.Nodes, shown)) })
		fmt.Fprintf(w, "rollout %s: waves %s\n", r.Name, strings.Join(waves, ", "))
		if b := r.Budget; b != nil && b.Each > 0 {
			fmt.Fprintf(w, "rollout %s: at most %d of each %s unavailable at once\n", r.Name, b.Each, b.Per)
		}
		if b := r.Budget; b != nil && b.Overall > 0 {
			fmt.Fprintf(w, "rollout %s: at most %d of %s unavailable at once\n", r.Name, b.Overall, plain.Count(len(b.Nodes), "node"))
		}
	}
}

// swap returns when a node starts over by itself into changes of a class, nil where it
// does not: a machine that boots for the first time is switched on by a person.
func swap(class string, policy *spec.LayerSwap, m *spec.Maintenance, now time.Time) *Turn {
	switch {
	case policy == nil || now.IsZero() || spec.Live(class) || class == spec.ClassCold:
		return nil
	case len(policy.Windows) == 0:
		return &Turn{Operation: spec.LayerSwapName, From: now.UTC()}
	}
	return cmp.Or(soonest(m, spec.LayerSwapName, policy.Windows, now, func(from time.Time) (time.Time, bool) { return from, true }),
		&Turn{Operation: spec.LayerSwapName})
}

// Turn is when an operation acts next.
type Turn struct {
	Operation string `json:"operation"`
	Window    string `json:"window,omitempty"` // empty where it needs none, and where none is known to open
	// not before; preconditions, slots and delays come on top. Absent where none is known to open
	From time.Time `json:"from,omitzero"`
}

// soonest returns when an operation may first act in any of its windows; run says when
// it would from a time on.
func soonest(m *spec.Maintenance, operation string, windows []string, now time.Time, run func(from time.Time) (time.Time, bool)) *Turn {
	var first *Turn
	for _, name := range windows {
		w := m.Windows[name]
		for _, i := range w.Intervals {
			last := i.To.Add(-time.Duration(w.StartGuard) * time.Second)
			if at, ok := run(later(i.From, now)); ok && at.Before(last) {
				if first == nil || at.Before(first.From) {
					first = &Turn{Operation: operation, Window: name, From: at.UTC()}
				}
				break
			}
		}
	}
	return first
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (t *Turn) text() string {
	if t == nil {
		return ""
	}
	if t.From.IsZero() {
		return t.Operation + ", of which no window is known to open"
	}
	text := t.Operation + " from " + t.From.UTC().Format("2006-01-02T15:04Z")
	if t.Window != "" {
		text += " in window " + t.Window
	}
	return text
}

// wait says of changes of a running node which of them wait for a window: new values of
// what operations of type realtime manage.
func wait(changes []Change, to *spec.Overlay, now time.Time) {
	if to.Maintenance == nil || len(to.Maintenance.Realtime) == 0 || now.IsZero() {
		return
	}
	for i := range changes {
		c := &changes[i]
		r := managed(c, to)
		if r == nil || len(r.Windows) == 0 || c.Action == spec.ActionRemove {
			continue // what leaves gets its original back at once
		}
		t := soonest(to.Maintenance, r.Name, r.Windows, now, func(from time.Time) (time.Time, bool) { return from, true })
		switch {
		case t == nil:
			t = &Turn{Operation: r.Name}
		case !t.From.After(now):
			continue // it is open
		}
		c.Waits, c.why = t, "it is set by its operation, in a window"
	}
}

// managed returns the operation of type realtime that sets what changes, nil where none
// does.
func managed(c *Change, to *spec.Overlay) *spec.Realtime {
	if c.Item != "nics" {
		return to.Maintenance.RealtimeOf(c.Item, rules.PolicyKey(c.Item, c.Key))
	}
	n := plain.First(to.Items.NICs, func(n spec.NIC) bool { return n.ID == c.Key })
	if len(n.Settings) == 0 {
		return nil
	}
	// all settings of one entry have one owner
	return to.Maintenance.RealtimeOf(c.Item, n.Match.Name+"/"+n.Settings[0].Group+"/"+n.Settings[0].Name)
}
