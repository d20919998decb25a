// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"cmp"
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// checkAnalyses checks how a rollout is compared, whose nodes soak for so many seconds, and fills in
// what v leaves out.
func checkAnalyses(c *shape.Checker, v *tree.Value, all []spec.Analysis, soak int64, of *strategy) []spec.Analysis {
	for i := range all {
		c.In(shape.Nth(i), func() { checkAnalysis(c, v.List[i], &all[i], soak, of) })
	}
	return all
}

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
	if a.Of == spec.OfGroup && (of == nil || of.Per == "") {
		c.Errorf(c.At(v, "of"), "analysis", "as in strategy: {maxUnavailable: 2, per: rack}", "the rollout has no groups")
	}
	if a.For < 1 {
		c.Errorf(c.At(v), "analysis", "write a soak", "a rollout that does not soak has nothing to look at")
	} else if a.For > soak {
		c.Errorf(c.At(v, "for"), "range", "", "it looks at the time for which nodes soak, which is %s", time.Duration(soak)*time.Second)
	}
	if a.AtLeast < 1 && c.Has(v, "atLeast") {
		c.Errorf(c.At(v, "atLeast"), "range", "", "an analysis needs one node or more")
	}
	a.AtLeast = max(a.AtLeast, 1)
}
