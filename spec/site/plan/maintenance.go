// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"io"
	"maps"
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

func windows(m *spec.Maintenance) []namedWindow {
	return plain.Each(slices.Sorted(maps.Keys(m.Windows)), func(name string) namedWindow { return namedWindow{name, m.Windows[name]} })
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

// swapTexts are the parts of when a node starts over by itself, for people.
func swapTexts(s *spec.LayerSwap) map[string]string {
	if s == nil {
		return nil
	}
	texts := map[string]string{"windows": "always"}
	if len(s.Windows) > 0 {
		texts["windows"] = strings.Join(s.Windows, " or ")
	}
	var when []string
	for _, c := range s.When {
		switch {
		case c.Command != nil:
			when = append(when, commandText(*c.Command))
		case c.Unit != "":
			when = append(when, c.Unit+" is active")
		case c.File != "":
			when = append(when, c.File+" exists")
		default:
			when = append(when, c.Absent+" does not exist")
		}
	}
	if when != nil {
		texts["when"] = strings.Join(when, " and ")
	}
	if s.Slot != "" {
		texts["slot"] = "of " + s.Slot
	}
	if s.Spread > 0 {
		texts["spread"] = seconds(s.Spread)
	}
	if d := s.Drain; d != nil {
		texts["drain.check"], texts["drain.exec"], texts["drain.undo"] = commandText(d.Check), commandText(d.Exec), commandText(d.Undo)
	}
	if s.Soak > 0 {
		texts["soak"] = seconds(s.Soak)
	}
	return texts
}

func commandText(c spec.Command) string {
	return fmt.Sprintf("%s (%s)", strings.Join(c.Argv, " "), seconds(c.Timeout))
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
	text := t.Operation + " from " + moment(t.From)
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
