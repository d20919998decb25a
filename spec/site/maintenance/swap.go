// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"slices"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// SwapDoc is when some nodes start over by themselves into what waits for that, as it
// is written.
type SwapDoc struct {
	Nodes   []shape.Text `site:"nodes" doc:"names of NodeSets; every node when absent. The last entry that is for a node counts alone"`
	Windows []shape.Text `site:"windows,required" doc:"names of MaintenanceWindows, or always"`
	turnDoc
	At report.Pos
}

// Swap is one entry of the site's swap.
type Swap struct {
	Written *tree.Value
	sets    []Set // of these nodes; of every node when nil
	windows []Window
	turn    turn
}

// AddSwaps checks the site's swap. Written is the list that docs were decoded from.
func (m *Maintenance) AddSwaps(c *shape.Checker, docs []SwapDoc, written *tree.Value) {
	for i, d := range docs {
		c.In(shape.Nth(i), func() {
			s := Swap{Written: written.List[i]}
			c.In("nodes", func() { s.sets = m.PickSets(c, d.Nodes) })
			var open bool
			s.windows, open = m.pickWindows(c, d.Windows)
			if d.Windows != nil && len(d.Windows) == 0 && !open {
				c.Errorf(d.At, "window", "name windows, or write windows: [always]", "a swap disturbs its node and has no window")
			}
			s.turn = d.turnDoc.check(c, s.windows)
			m.swaps = append(m.swaps, s)
		})
	}
	for i, s := range m.swaps {
		if all := slices.IndexFunc(m.swaps[i+1:], func(later Swap) bool { return later.sets == nil }); all >= 0 {
			c.In(shape.Nth(i), func() {
				c.Warnf(s.Written.At, "dead-override", "put the entry for every node first", "the entry has no effect: that at %s is for every node", m.swaps[i+1+all].Written.At)
			})
		}
	}
}

// Swap returns the entry that counts for a node, nil where none does.
func (m Maintenance) Swap(n inventory.Node) *Swap {
	for i := len(m.swaps) - 1; i >= 0; i-- {
		if s := &m.swaps[i]; s.sets == nil || slices.ContainsFunc(s.sets, func(set Set) bool { return set.Has(n) }) {
			return s
		}
	}
	return nil
}

// Spec returns what a node is sent.
func (s *Swap) Spec(n inventory.Node) *spec.LayerSwap {
	out := &spec.LayerSwap{Order: s.turn.of(n)}
	for _, w := range s.windows {
		out.Windows = append(out.Windows, w.Name)
	}
	return out
}
