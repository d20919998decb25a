// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// strategyDoc is how many nodes may be unavailable at once, as it is written.
type strategyDoc struct {
	MaxUnavailable shape.Number `site:"maxUnavailable" doc:"nodes of each group that may be unavailable at once; with per"`
	Per            shape.Text   `site:"per" doc:"label whose values are the groups, for example rack"`
	Overall        shape.Text   `site:"overall" doc:"nodes of the rollout that may be unavailable at once, or a percentage of them, rounded down, as in 5%"`
	Order          []waveDoc    `site:"order" doc:"who comes first, by the terms of waves; a word is a NodeSet. The next term begins when the nodes of the one before are proved"`
	At             report.Pos
}

// strategy is a strategyDoc, checked.
type strategy struct {
	at   report.Pos
	rule struct {
		per     string
		each    int
		overall int // a number, or
		percent int // of the rollout's nodes
	}
}

func (d *strategyDoc) check(c *shape.Checker) *strategy {
	s := &strategy{at: d.At}
	s.rule.per, s.rule.each = d.Per.S, int(d.MaxUnavailable.N)
	const example = "as in {maxUnavailable: 2, per: rack, overall: 5%}"
	switch n := d.MaxUnavailable; {
	case n.Set() != d.Per.Set():
		c.Errorf(d.At, "strategy", example, "maxUnavailable and per come together; overall alone bounds all nodes")
	case !n.Set() && !d.Overall.Set():
		c.Errorf(d.At, "strategy", example, "a strategy has maxUnavailable with per, or overall, or both")
	case n.Set() && n.N < 1:
		c.Errorf(n.At, "range", "", "a budget of %d nodes never lets one move", n.N)
	}
	if !d.Overall.Set() {
		return s
	}
	text, percent := strings.CutSuffix(d.Overall.S, "%")
	n, err := strconv.Atoi(text)
	c.In("overall", func() {
		switch {
		case err != nil:
			c.Errorf(d.Overall.At, "strategy", "as in 20 or 5%", "%q is neither a number of nodes nor a percentage", d.Overall.S)
		case percent && (n < 1 || n > 100):
			c.Errorf(d.Overall.At, "range", "", "a percentage is 1 to 100")
		case n < 1:
			c.Errorf(d.Overall.At, "range", "", "a budget of %d nodes never lets one move", n)
		case percent:
			s.rule.percent = n
		default:
			s.rule.overall = n
		}
	})
	return s
}

// Budget returns how many of these nodes that are the rollout's may be unavailable at once; nil
// where those of a wave move together.
func (r Rollout) Budget(nodes []inventory.Node) *spec.RolloutBudget {
	if r.strategy == nil {
		return nil
	}
	rule := r.strategy.rule
	b := &spec.RolloutBudget{Per: rule.per, Each: rule.each, Overall: rule.overall, Nodes: map[string]string{}}
	for _, n := range r.of(nodes) {
		b.Nodes[n.Name], _ = n.Label(rule.per) // asked by checkBudget
	}
	if rule.percent > 0 {
		b.Overall = len(b.Nodes) * rule.percent / 100
	}
	return b
}

// checkBudget refuses a budget that says nothing of a node, or never lets one move.
func (r Rollout) checkBudget(c *shape.Checker, mine []inventory.Node) {
	rule := r.strategy.rule
	for _, n := range mine {
		if _, has := n.Label(rule.per); rule.per != "" && !has {
			c.Errorf(r.strategy.at, "strategy", inventory.LabelHint(rule.per, "", mine), "the node %s has no label %q, whose values are the groups", n.Name, rule.per)
			return
		}
	}
	if rule.percent > 0 && len(mine)*rule.percent < 100 {
		c.Errorf(r.strategy.at, "strategy", "as in overall: 1", "%d%% of %d nodes is not one node: none would ever move", rule.percent, len(mine))
	}
}
