// SPDX-License-Identifier: Apache-2.0

package waves

import (
	"cmp"
	"slices"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// CheckDoc is a check of health as it is written.
type CheckDoc struct {
	Name  string       `site:"name,required" doc:"name of the check, unique in this list"`
	Nodes []shape.Text `site:"nodes" doc:"names of NodeSets; every node when absent"`
	spec.HealthCheck
}

// usually holds the defaults where nothing is said, times in seconds: a service has five minutes
// to come up.
var usually = map[string]int64{"timeout": 10, "interval": 10, "retries": 30}

// HealthCheck is one check, by which nodes tell whether a change was good, and the nodes that it is
// for. What it may say is decided by package rules.
type HealthCheck struct {
	spec.HealthCheck
	Written *tree.Value
	sets    maintenance.Sets
}

// HealthChecks are a site's, sorted by name.
type HealthChecks []HealthCheck

// ReadHealth makes values of documents, and reports what is wrong with them. Written is the
// list that they were decoded from.
func ReadHealth(c *shape.Checker, docs []CheckDoc, written *tree.Value, m maintenance.Maintenance) HealthChecks {
	var out HealthChecks
	names := map[string]report.Pos{}
	for i, d := range docs {
		c.In(shape.Nth(i), func() {
			v := written.List[i]
			name := c.At(v, "name")
			d.HealthCheck.Name = d.Name
			if first, dup := names[d.Name]; dup && name != (report.Pos{}) {
				c.Errorf(name, "duplicate-name", "", "there is a check %q already, at %s", d.Name, first)
			}
			names[d.Name] = name
			for key, usual := range map[string]*int64{"timeout": &d.Timeout, "interval": &d.Interval, "retries": &d.Retries} {
				if c.At(v, key) == (report.Pos{}) {
					*usual = usually[key]
				}
			}
			one := HealthCheck{HealthCheck: d.HealthCheck, Written: v}
			c.In("nodes", func() { one.sets = m.PickSets(c, d.Nodes) })
			if name != (report.Pos{}) { // else that is said already
				c.ValidIn(c.At(v), v, rules.HealthCheck(d.HealthCheck))
			}
			out = append(out, one)
		})
	}
	slices.SortFunc(out, func(a, b HealthCheck) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Of returns the checks that are for a node.
func (c HealthChecks) Of(n inventory.Node) HealthChecks {
	return slices.DeleteFunc(slices.Clone(c), func(one HealthCheck) bool { return !one.sets.Has(n) })
}

// Node returns what a node is sent, nil where it looks at nothing.
func (c HealthChecks) Node(n inventory.Node) *spec.Gates {
	checks := plain.Each(c.Of(n), func(one HealthCheck) spec.HealthCheck { return one.HealthCheck })
	if checks == nil {
		return nil
	}
	return &spec.Gates{Checks: checks}
}
