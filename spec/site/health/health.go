// SPDX-License-Identifier: Apache-2.0

// Package health reads the site's health checks: what nodes look at after a change,
// before it counts as good. Which nodes that are is decided here, too; what a check
// may say is decided by package rules. Package site is the only caller.
package health

import (
	"cmp"
	"slices"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// CheckDoc is a check as it is written.
type CheckDoc struct {
	Name  string       `site:"name,required" doc:"name of the check, unique in this list"`
	Nodes []shape.Text `site:"nodes" doc:"names of NodeSets; every node when absent"`
	spec.HealthCheck
}

// usually holds the defaults where nothing is said, times in seconds: a service has five minutes
// to come up.
var usually = map[string]int64{"timeout": 10, "interval": 10, "retries": 30}

// Check is one check and the nodes that it is for.
type Check struct {
	spec.HealthCheck
	Written *tree.Value
	sets    []maintenance.Set // of these nodes; of every node when nil
}

// Checks are a site's, sorted by name.
type Checks []Check

// Read makes values of documents, and reports what is wrong with them. Written is the
// list that they were decoded from.
func Read(c *shape.Checker, docs []CheckDoc, written *tree.Value, m *maintenance.Maintenance) Checks {
	var out Checks
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
			one := Check{HealthCheck: d.HealthCheck, Written: v}
			c.In("nodes", func() { one.sets = m.PickSets(c, d.Nodes) })
			if name != (report.Pos{}) { // else that is said already
				c.ValidIn(c.At(v), v, rules.HealthCheck(d.HealthCheck))
			}
			out = append(out, one)
		})
	}
	slices.SortFunc(out, func(a, b Check) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Of returns the checks that are for a node.
func (c Checks) Of(n inventory.Node) Checks {
	return slices.DeleteFunc(slices.Clone(c), func(one Check) bool { return !one.has(n) })
}

// Node returns what a node is sent, nil where it looks at nothing.
func (c Checks) Node(n inventory.Node) *spec.Gates {
	var g spec.Gates
	for _, one := range c.Of(n) {
		g.Checks = append(g.Checks, one.HealthCheck)
	}
	if g.Checks == nil {
		return nil
	}
	return &g
}

func (c Check) has(n inventory.Node) bool {
	return c.sets == nil || slices.ContainsFunc(c.sets, func(s maintenance.Set) bool { return s.Has(n) })
}
