// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"cmp"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// analysisDoc is a spec.Analysis as it is written.
type analysisDoc struct {
	Query   shape.Text     `site:"query,required" doc:"PromQL; each series of the answer is one node's"`
	Label   shape.Text     `site:"label" doc:"label of a series whose value is the node's name, a port behind it cut off; instance when absent"`
	Of      shape.Text     `site:"of" enum:"wave,group" doc:"group compares each group of the strategy by itself; wave when absent"`
	Against shape.Text     `site:"against" enum:"rest" doc:"rest compares with the mean of the nodes that have not moved; without it worse is a value"`
	Worse   shape.Text     `site:"worse,required" doc:"when the mean of the nodes that moved is worse, as in \"> 1.2 ×\" that of the others, or \"> 0.05\""`
	For     shape.Duration `site:"for" doc:"how long it must be worse to halt the rollout, and not worse to pass; at most soak, and as long when absent"`
	AtLeast shape.Number   `site:"atLeast" doc:"so many nodes of each side must have a value; 1 when absent"`
	At      report.Pos
}

// checkAnalyses reads how a rollout is compared, whose nodes soak for so many seconds.
func checkAnalyses(c *shape.Checker, docs []analysisDoc, soak int64, of *strategy) (all []spec.Analysis) {
	for i, d := range docs {
		c.In(shape.Nth(i), func() { all = append(all, d.check(c, soak, of)) })
	}
	return all
}

func (d analysisDoc) check(c *shape.Checker, soak int64, of *strategy) spec.Analysis {
	a := spec.Analysis{Query: d.Query.S, Label: cmp.Or(d.Label.S, "instance"), Of: cmp.Or(d.Of.S, spec.OfWave), Against: d.Against.S,
		Worse: d.Worse.S, For: soak, AtLeast: int(max(d.AtLeast.N, 1))}
	if d.For.Set() {
		a.For = seconds(d.For.D)
	}
	bound, err := rules.Worse(a.Worse)
	switch {
	case err != nil:
		c.Errorf(d.Worse.At, "analysis", "", "%v", err)
	case bound.Times && a.Against == "":
		c.Errorf(d.Worse.At, "analysis", "against: rest", "%q compares with other nodes, and against says with none", a.Worse)
	case !bound.Times && a.Against != "":
		c.Errorf(d.Worse.At, "analysis", `as in "> 1.2 ×"`, "against compares with other nodes, and %q is a value", a.Worse)
	}
	if a.Of == spec.OfGroup && (of == nil || of.rule.per == "") {
		c.Errorf(d.Of.At, "analysis", "as in strategy: {maxUnavailable: 2, per: rack}", "the rollout has no groups")
	}
	if a.For < 1 {
		c.Errorf(d.At, "analysis", "write a soak", "a rollout that does not soak has nothing to look at")
	} else if a.For > soak {
		c.Errorf(d.For.At, "range", "", "it looks at the time for which nodes soak, which is %s", time.Duration(soak)*time.Second)
	}
	if n := d.AtLeast; n.Set() && n.N < 1 {
		c.Errorf(n.At, "range", "", "an analysis needs one node or more")
	}
	return a
}
