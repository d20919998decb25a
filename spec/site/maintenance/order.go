// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/calendar"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// turnDoc holds the steps around an act that disturbs, as they are written.
type turnDoc struct {
	When  []conditionDoc `site:"when" doc:"conditions that must all hold before anything is disturbed"`
	Slot  *slotDoc       `site:"slot" doc:"how many nodes of a group may be disturbed at once"`
	Drain *drainDoc      `site:"drain" doc:"how a node is drained before it is disturbed"`
	Soak  shape.Pause    `site:"soak" doc:"how long a node keeps its slot once it is healthy after it was disturbed"`
}

// conditionDoc is one precondition as it is written.
type conditionDoc struct {
	spec.Condition
	Command *commandDoc `site:"command" doc:"command that must end with exit code 0"`
	V       *tree.Value
}

// slotDoc is how many nodes may be disturbed at once, as it is written.
type slotDoc struct {
	Group shape.Text `site:"group" doc:"nodes that take turns"`
	By    shape.Text `site:"by" doc:"label whose values each make a group of the nodes that have them"`
	spec.Slot
	Spread shape.Pause `site:"spread" doc:"each node starts later by its own, constant part of this; a tenth of the window when absent"`
	V      *tree.Value
}

type drainDoc struct {
	Check commandDoc `site:"check,required" doc:"command that ends with exit code 0 when another has drained the node, and will undo that"`
	Exec  commandDoc `site:"exec,required" doc:"command that drains the node"`
	Undo  commandDoc `site:"undo,required" doc:"command that undoes the drain"`
	V     *tree.Value
}

const maxSoak = 7 * 24 * time.Hour

// turn holds the steps around acts that disturb: operations of a NodeMaintenance, and
// a swap.
type turn struct {
	order spec.Order // Slot is set for each node
	slot  spec.Slot
	by    string // label whose values are the groups
	at    report.Pos
}

// is reports whether anything is to come before or after.
func (t turn) is() bool {
	return len(t.order.When) > 0 || t.order.Slot != "" || t.by != "" || t.order.Drain != nil || t.order.Soak > 0
}

func (d turnDoc) check(c *shape.Checker, windows []calendar.Window) turn {
	var t turn
	shape.Each(c, "when", d.When, func(_ int, w conditionDoc) { t.order.When = append(t.order.When, w.check(c)) })
	if d.Slot != nil {
		c.In("slot", func() { d.Slot.check(c, &t, windows) })
	}
	if d.Drain != nil {
		c.In("drain", func() { t.order.Drain = d.Drain.check(c) })
	}
	if t.order.Soak = int64(d.Soak.D / time.Second); d.Soak.D > maxSoak {
		c.Errorf(d.Soak.At, "range", "", "a soak is at most a week")
	}
	return t
}

func (d conditionDoc) check(c *shape.Checker) spec.Condition {
	if d.Command != nil {
		c.In("command", func() { d.Condition.Command = d.Command.check(c, d.V.Get("command")) })
	}
	if d.Command == nil || c.Has(d.V, "file") || c.Has(d.V, "absent") || c.Has(d.V, "unit") {
		c.Valid(c.At(d.V), rules.Condition(d.Condition))
	}
	return d.Condition
}

func (d *slotDoc) check(c *shape.Checker, t *turn, windows []calendar.Window) {
	t.at, t.by, t.order.Slot, t.slot = c.At(d.V), d.By.S, d.Group.S, d.Slot
	if d.Group.Set() == d.By.Set() {
		c.Errorf(t.at, "slot", "as in {group: storage, max: 1, …} or {by: rack, max: 1, …}", "a slot has one of group and by")
	} else if d.Group.Set() {
		c.In("group", func() { c.Valid(d.Group.At, rules.SlotGroup(d.Group.S)) })
	}
	if c.Has(d.V, "max") {
		c.Valid(t.at, rules.Slot(t.slot))
	}
	shortest := time.Duration(0)
	for _, w := range windows {
		if usable := w.Duration - w.StartGuard; shortest == 0 || usable < shortest {
			shortest = usable
		}
	}
	t.order.Spread = int64(shortest / 10 / time.Second)
	if !d.Spread.Set() {
		return
	}
	t.order.Spread = int64(d.Spread.D / time.Second)
	c.In("spread", func() {
		switch {
		case d.Spread.D == 0:
		case shortest == 0:
			c.Errorf(d.Spread.At, "slot", "name a window, or remove it", "nodes are spread over a window, and there is none")
		case d.Spread.D >= shortest:
			c.Errorf(d.Spread.At, "range", "something shorter than the shortest window less its startGuard",
				"some nodes could never start within %s", calendar.Length(shortest))
		}
	})
}

func (d *drainDoc) check(c *shape.Checker) *spec.Drain {
	for name, k := range map[string]*commandDoc{"check": &d.Check, "exec": &d.Exec, "undo": &d.Undo} {
		c.In(name, func() { k.check(c, d.V.Get(name)) })
	}
	return &spec.Drain{Check: spec.Command(d.Check), Exec: spec.Command(d.Exec), Undo: spec.Command(d.Undo)}
}

// groupOf returns the group of a node; false where it has none of the label's values.
func (t turn) groupOf(n inventory.Node) (string, bool) {
	if t.by == "" {
		return t.order.Slot, true
	}
	value, ok := n.Label(t.by)
	return t.by + "." + value, ok
}

// of returns the order of a node's operations.
func (t turn) of(n inventory.Node) spec.Order {
	o := t.order
	o.Slot, _ = t.groupOf(n) // asked by CheckNodes
	return o
}

// CheckNodes reports nodes that cannot take their turn, and sets without any.
func (m Maintenance) CheckNodes(c *shape.Checker, nodes []inventory.Node) {
	warnOfNobody(c, m.Sets, nodes)
	counts := map[string]spec.Slot{}
	check := func(t turn, n inventory.Node) {
		group, ok := t.groupOf(n)
		switch known, is := counts[group]; {
		case !ok:
			c.Errorf(t.at, "slot", "give it the label, or leave it out by a NodeSet",
				"the node %s has no label %q, whose values are the groups", n.Name, t.by)
			return
		case group == "":
			return
		case is && known != t.slot:
			c.Errorf(t.at, "slot", "groups of one name are the same group", "the group %s is counted otherwise elsewhere", group)
		case !is && t.by != "":
			c.Valid(t.at, rules.SlotGroup(group))
		}
		counts[group] = t.slot
	}
	for _, p := range m.nodes {
		for _, n := range nodes {
			if p.turn.is() && p.sets.Has(n) {
				check(p.turn, n)
			}
		}
	}
	for _, n := range nodes {
		if s := m.Swap(n); s != nil {
			check(s.turn, n)
		}
	}
}
