// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"cmp"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/inventory"
)

// Expanded is a site's maintenance with its calendars resolved for some months. It is
// safe for concurrent use.
type Expanded struct {
	of      Maintenance
	horizon time.Time
	windows map[string]spec.Window
}

// Expand resolves the calendars as they are published at a time.
func (m Maintenance) Expand(now time.Time) *Expanded {
	span := calendar.Horizon(now)
	e := &Expanded{horizon: span.To, windows: map[string]spec.Window{}, of: m}
	e.of.nodes = slices.Clone(m.nodes)
	for _, w := range m.Windows {
		e.windows[w.Name] = w.During(span)
	}
	for i, p := range e.of.nodes {
		e.of.nodes[i].operations = slices.Clone(p.operations)
		for j := range e.of.nodes[i].operations {
			o := &e.of.nodes[i].operations[j]
			o.Windows = plain.Each(p.windows, windowName)
			if o.Type == spec.Cron {
				o.Runs = o.schedule.Runs(span)
			}
		}
	}
	return e
}

// Node returns what one node does, nil for nothing.
func (e *Expanded) Node(n inventory.Node) *spec.Maintenance {
	var out *spec.Maintenance
	add := func(windows []calendar.Window, group string, t turn) {
		if out == nil {
			out = &spec.Maintenance{Horizon: e.horizon, Windows: map[string]spec.Window{}, Operations: []spec.Operation{}}
		}
		if group != "" {
			if out.Slots == nil {
				out.Slots = map[string]spec.Slot{}
			}
			out.Slots[group] = t.slot
		}
		for _, w := range windows {
			out.Windows[w.Name] = e.windows[w.Name]
		}
	}
	for _, p := range e.of.nodes {
		if !p.sets.Has(n) || len(p.operations)+len(p.realtime) == 0 {
			continue
		}
		order := p.turn.of(n)
		add(p.windows, order.Slot, p.turn)
		for _, o := range p.operations {
			if o.Disruptive && p.turn.is() {
				o.Order = &order
			}
			out.Operations = append(out.Operations, o.Operation)
		}
	}
	if s := e.of.Swap(n); s != nil {
		if group := s.turn.of(n).Slot; len(s.windows) > 0 || group != "" {
			add(s.windows, group, s.turn)
		}
	}
	if out != nil {
		slices.SortFunc(out.Operations, func(a, b spec.Operation) int { return cmp.Compare(a.Name, b.Name) })
	}
	return out
}

// WindowsOf returns the windows that one node's operations and its swap wait for.
func (m Maintenance) WindowsOf(n inventory.Node) []calendar.Window {
	var waits []string
	for _, p := range m.nodes {
		if p.sets.Has(n) {
			waits = append(waits, plain.Each(p.windows, windowName)...)
		}
	}
	if s := m.Swap(n); s != nil {
		waits = append(waits, plain.Each(s.windows, windowName)...)
	}
	return slices.DeleteFunc(slices.Clone(m.Windows), func(w calendar.Window) bool { return !slices.Contains(waits, w.Name) })
}

// Operates reports whether any node does something over time.
func (m Maintenance) Operates() bool { return len(m.nodes)+len(m.swaps) > 0 }

// NeverOpen returns the names of windows that some nodes wait for and that do not
// open before the horizon.
func (e *Expanded) NeverOpen() []string {
	waits := slices.Concat(append(plain.Each(e.of.nodes, func(p nodeMaintenance) []calendar.Window { return p.windows }),
		plain.Each(e.of.swaps, func(s Swap) []calendar.Window { return s.windows })...)...)
	var out []string
	for _, w := range waits {
		if len(e.windows[w.Name].Intervals) == 0 && !slices.Contains(out, w.Name) {
			out = append(out, w.Name)
		}
	}
	return out
}
