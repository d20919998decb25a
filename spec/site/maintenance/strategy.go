// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// strategy is how many nodes may be unavailable at once.
type strategy struct {
	Each  int    `site:"maxUnavailable" doc:"nodes of each group that may be unavailable at once; with per"`
	Per   string `site:"per" doc:"label whose values are the groups, for example rack"`
	Bound string `site:"overall" doc:"nodes of the rollout that may be unavailable at once, or a percentage of them, rounded down, as in 5%"`
	Order []wave `site:"order" doc:"who comes first, by the terms of waves; a word is a NodeSet. The next term begins when the nodes of the one before are proved"`
	At    report.Pos
	V     *tree.Value

	overall int // a number, or
	percent int // of the rollout's nodes
}

func (s *strategy) check(c *shape.Checker) {
	const example = "as in {maxUnavailable: 2, per: rack, overall: 5%}"
	each, at := c.Has(s.V, "maxUnavailable"), c.At(s.V, "overall")
	switch {
	case each != c.Has(s.V, "per"):
		c.Errorf(s.At, "strategy", example, "maxUnavailable and per come together; overall alone bounds all nodes")
	case !each && at == (report.Pos{}):
		c.Errorf(s.At, "strategy", example, "a strategy has maxUnavailable with per, or overall, or both")
	case each && s.Each < 1:
		c.Errorf(c.At(s.V, "maxUnavailable"), "range", "", "a budget of %d nodes never lets one move", s.Each)
	}
	if at == (report.Pos{}) {
		return
	}
	text, percent := strings.CutSuffix(s.Bound, "%")
	n, err := strconv.Atoi(text)
	c.In("overall", func() {
		switch {
		case err != nil:
			c.Errorf(at, "strategy", "as in 20 or 5%", "%q is neither a number of nodes nor a percentage", s.Bound)
		case percent && (n < 1 || n > 100):
			c.Errorf(at, "range", "", "a percentage is 1 to 100")
		case n < 1:
			c.Errorf(at, "range", "", "a budget of %d nodes never lets one move", n)
		case percent:
			s.percent = n
		default:
			s.overall = n
		}
	})
}

// Budget returns how many of these nodes that are the rollout's may be unavailable at once; nil
// where those of a wave move together.
func (r Rollout) Budget(nodes []inventory.Node) *spec.RolloutBudget {
	if r.strategy == nil {
		return nil
	}
	rule := r.strategy
	b := &spec.RolloutBudget{Per: rule.Per, Each: rule.Each, Overall: rule.overall, Nodes: map[string]string{}}
	for _, n := range r.of(nodes) {
		b.Nodes[n.Name], _ = n.Label(rule.Per) // asked by checkBudget
	}
	if rule.percent > 0 {
		b.Overall = len(b.Nodes) * rule.percent / 100
	}
	return b
}

// checkBudget refuses a budget that leaves a node out, or never lets one move.
func (r Rollout) checkBudget(c *shape.Checker, mine []inventory.Node) {
	rule := r.strategy
	for _, n := range mine {
		if _, has := n.Label(rule.Per); rule.Per != "" && !has {
			c.Errorf(rule.At, "strategy", inventory.LabelHint(rule.Per, "", mine),
				"the node %s has no label %q, whose values are the groups", n.Name, rule.Per)
			return
		}
	}
	c.Refuse(rule.percent > 0 && len(mine)*rule.percent < 100, rule.At, "strategy", "as in overall: 1",
		"%d%% of %d nodes is not one node: none would ever move", rule.percent, len(mine))
}

// checkAnalysis checks how a rollout is compared, whose nodes soak for so many seconds, and fills in
// what v leaves out.
func checkAnalysis(c *shape.Checker, v *tree.Value, a *spec.Analysis, soak int64, of *strategy) {
	a.Label, a.Of = cmp.Or(a.Label, "instance"), cmp.Or(a.Of, spec.OfWave)
	if !c.Has(v, "for") {
		a.For = soak
	}
	worse := c.At(v, "worse")
	bound, err := rules.Worse(a.Worse)
	switch {
	case err != nil:
		c.Errorf(worse, "analysis", "", "%v", err)
	case bound.Times && a.Against == "":
		c.Errorf(worse, "analysis", "against: rest", "%q compares with other nodes, and against says with none", a.Worse)
	case !bound.Times && a.Against != "":
		c.Errorf(worse, "analysis", `as in "> 1.2 ×"`, "against compares with other nodes, and %q is a value", a.Worse)
	}
	c.Refuse(a.Of == spec.OfGroup && (of == nil || of.Per == ""), c.At(v, "of"), "analysis", "as in strategy: {maxUnavailable: 2, per: rack}",
		"the rollout has no groups")
	if a.For < 1 {
		c.Errorf(c.At(v), "analysis", "write a soak", "a rollout that does not soak has nothing to look at")
	} else if a.For > soak {
		c.Errorf(c.At(v, "for"), "range", "", "it looks at the time for which nodes soak, which is %s", time.Duration(soak)*time.Second)
	}
	c.Refuse(a.AtLeast < 1 && c.Has(v, "atLeast"), c.At(v, "atLeast"), "range", "", "an analysis needs one node or more")
	a.AtLeast = max(a.AtLeast, 1)
}
