// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

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
	i := slices.IndexFunc(to.Items.NICs, func(n spec.NIC) bool { return n.ID == c.Key })
	if i < 0 || len(to.Items.NICs[i].Settings) == 0 {
		return nil
	}
	n := to.Items.NICs[i] // all settings of one entry have one owner
	return to.Maintenance.RealtimeOf(c.Item, n.Match.Name+"/"+n.Settings[0].Group+"/"+n.Settings[0].Name)
}
