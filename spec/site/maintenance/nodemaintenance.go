// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"slices"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// NodeMaintenanceDoc is a NodeMaintenance as it is written.
type NodeMaintenanceDoc struct {
	HeadDoc
	Kind shape.Text             `site:"kind,required" enum:"NodeMaintenance"`
	Spec nodeMaintenanceSpecDoc `site:"spec,required"`

	from map[string]string // templates of its operations, by the operation's name
}

type nodeMaintenanceSpecDoc struct {
	Nodes   []shape.Text `site:"nodes" doc:"names of NodeSets; every node when absent"`
	Windows []shape.Text `site:"windows" doc:"names of MaintenanceWindows, or always"`
	turnDoc
	Operations []operationDoc `site:"operations,required"`
}

// always is the name of a window that is always open.
const always = "always"

// nodeMaintenance holds the operations of some nodes, and their times.
type nodeMaintenance struct {
	name       string
	sets       Sets
	windows    []Window
	operations []operation
	realtime   []Realtime
	turn       turn // of those that disturb
}

func (d NodeMaintenanceDoc) check(c *shape.Checker, m *Maintenance) nodeMaintenance {
	out := nodeMaintenance{name: d.Metadata.Name.S}
	c.In("nodes", func() { out.sets = m.PickSets(c, d.Spec.Nodes) })
	var open bool
	out.windows, open = m.pickWindows(c, d.Spec.Windows)
	out.turn = d.Spec.turnDoc.check(c, out.windows)
	if disturbs := slices.ContainsFunc(d.Spec.Operations, operationDoc.disturbs); out.turn.is() && !disturbs && len(d.Spec.Operations) > 0 {
		c.Errorf(c.At(d.Spec.Operations[0].V), "order", "say disruptive: true where one disturbs its node",
			"when, slot, drain and soak are of operations that disturb, and none here does")
	}
	seen := names{}
	shape.Each(c, "operations", d.Spec.Operations, func(_ int, o operationDoc) {
		switch {
		case !seen.add(c, "operation", o.Name):
		case o.Type.S == spec.RealtimeType:
			out.realtime = append(out.realtime, o.checkRealtime(c, &out, d.from[o.Name.S]))
		default:
			done := o.check(c, out.name, out.windows, open)
			done.From = d.from[o.Name.S]
			out.operations = append(out.operations, done)
		}
	})
	return out
}

// pickWindows returns the windows that are named; open is true where that is always.
func (m Maintenance) pickWindows(c *shape.Checker, list []shape.Text) (windows []Window, open bool) {
	c.In("windows", func() {
		if open = slices.ContainsFunc(list, func(t shape.Text) bool { return t.S == always }); open {
			c.Refuse(len(list) > 1, list[0].At, "window", "", "always is every window: write it alone")
			return
		}
		windows = pick[WindowDoc](c, list, m.Windows, Window.name)
	})
	return windows, open
}

// PickSets returns the sets that a document of another kind names, nil for every
// node, and reports names that there are not.
func (m Maintenance) PickSets(c *shape.Checker, list []shape.Text) Sets {
	return pick[NodeSetDoc](c, list, m.Sets, func(s Set) string { return s.Name })
}

// pick returns the values that documents of type D name, and reports names that there
// are not.
func pick[D, T any](c *shape.Checker, list []shape.Text, all []T, name func(T) string) []T {
	kind := shape.Kind[D]()
	var out []T
	for i, t := range list {
		at := slices.IndexFunc(all, func(v T) bool { return name(v) == t.S })
		if at < 0 {
			known := plain.Each(all, name)
			hint := report.DidYouMean(t.S, known)
			if len(known) == 0 {
				hint = "write a document of kind: " + kind + " with metadata: {name: " + t.S + "}"
				if kind == shape.Kind[WindowDoc]() {
					hint += ", or windows: [always]"
				}
			}
			c.In(shape.Nth(i), func() {
				c.Errorf(t.At, "unknown-name", hint, "there is no %s %q", kind, t.S)
			})
			continue
		}
		out = append(out, all[at])
	}
	return out
}
