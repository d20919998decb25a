// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// maintenance compares what a node does over time.
func (c *comparison) maintenance(from, to *spec.Maintenance) {
	from, to = cmp.Or(from, &spec.Maintenance{}), cmp.Or(to, &spec.Maintenance{})
	compareLists(c, "window", windows(from), windows(to), func(w namedWindow) (string, string) { return w.name, w.text() })
	before := plain.Map(from.Operations, func(o spec.Operation) (name, id string) { return o.Name, o.ID })
	compareLists(c, "operation", from.Operations, to.Operations, func(o spec.Operation) (string, string) {
		text := operationText(o)
		if id := before[o.Name]; id != "" && id != o.ID { // only those that are wanted have another one
			text = "runs again: " + text
		}
		return o.Name, text
	})
	compareLists(c, "operation", from.Realtime, to.Realtime, func(r spec.Realtime) (string, string) { return r.Name, realtimeText(r) })
}

func realtimeText(r spec.Realtime) string {
	keys := plain.Each(r.Keys, func(k spec.ItemKey) string { return k.Item + " " + rules.PolicyName(k.Item, k.Key) })
	text := "realtime" + budgetText(r.Budget) + ": " + strings.Join(keys, ", ")
	if len(r.Windows) > 0 {
		text += ", set in " + strings.Join(r.Windows, " or ")
	}
	return text
}

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
	for _, at := range o.Runs {
		if !at.Before(from) {
			return at, true
		}
	}
	return time.Time{}, false
}

type namedWindow struct {
	name string
	spec.Window
}

func windows(m *spec.Maintenance) (out []namedWindow) {
	for name, w := range m.Windows {
		out = append(out, namedWindow{name, w})
	}
	slices.SortFunc(out, func(a, b namedWindow) int { return cmp.Compare(a.name, b.name) })
	return out
}

func (w namedWindow) text() string {
	if len(w.Intervals) == 0 {
		return "never open"
	}
	last := w.Intervals[len(w.Intervals)-1]
	text := fmt.Sprintf("open %d times, first at %s, until %s", len(w.Intervals), moment(w.Intervals[0].From), moment(last.To))
	if w.StartGuard > 0 {
		text += fmt.Sprintf(", nothing starts in the last %s", seconds(w.StartGuard))
	}
	if w.OnClose == "stop" {
		text += ", then what runs is stopped"
	}
	return text
}

func operationText(o spec.Operation) string {
	text := fmt.Sprintf("%s: %s", o.Type, strings.Join(o.Exec.Argv, " "))
	switch {
	case o.Type == spec.Cron && len(o.Runs) == 0:
		text += ", never"
	case o.Type == spec.Cron:
		text += fmt.Sprintf(", %d times, first at %s", len(o.Runs), moment(o.Runs[0]))
	case o.Generation > 0:
		text += fmt.Sprintf(", generation %d", o.Generation)
	}
	if len(o.Windows) > 0 {
		text += ", in " + strings.Join(o.Windows, " or ")
	}
	if o.Order != nil && o.Order.Slot != "" {
		text += ", with a slot of " + o.Order.Slot
	}
	return text
}

func moment(t time.Time) string { return t.UTC().Format("2006-01-02T15:04Z") }

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
	life := seconds(t.Lifetime)
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
