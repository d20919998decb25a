// SPDX-License-Identifier: Apache-2.0

// Package health reads the site's health checks: what nodes look at after a change,
// before it counts as good. Which nodes that are is decided here, too; what a check
// may say is decided by package rules. Package site is the only caller.
package health

import (
	"cmp"
	"slices"
	"time"

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
	Name     shape.Text     `site:"name,required" doc:"name of the check, unique in this list"`
	Nodes    []shape.Text   `site:"nodes" doc:"names of NodeSets; every node when absent"`
	Command  []shape.Block  `site:"command" doc:"program, by its absolute path, and arguments; the check passes with exit code 0; no shell runs it"`
	Unit     shape.Text     `site:"unit" doc:"unit that must be active, as in kubelet.service"`
	TCP      shape.Text     `site:"tcp" doc:"address that must accept a connection, as in 127.0.0.1:6443"`
	HTTP     shape.Text     `site:"http" doc:"URL that must answer, as in http://127.0.0.1:10248/healthz"`
	Status   shape.Number   `site:"status" doc:"HTTP status of the answer; any from 200 to 299 when absent"`
	File     shape.Text     `site:"file" doc:"file that must exist, as in /run/ready"`
	Timeout  shape.Duration `site:"timeout" doc:"time for one look; 10s when absent, at most 10m"`
	Interval shape.Duration `site:"interval" doc:"time between two looks; 10s when absent, at most 1h"`
	Retries  shape.Number   `site:"retries" doc:"number of failures before the check fails; 30 when absent, at most 1000"`
	Soak     shape.Pause    `site:"soak" doc:"how long the check must pass without a failure; one pass is enough when absent, at most 1d"`
	Watch    shape.Flag     `site:"watch" doc:"the check goes on after the change, and the node is degraded while it fails"`
	At       report.Pos
}

// What counts where nothing is said: a service has five minutes to come up.
const (
	usualTimeout  = 10
	usualInterval = 10
	usualRetries  = 30
)

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
			if first, dup := names[d.Name.S]; dup && d.Name.Set() {
				c.Errorf(d.Name.At, "duplicate-name", "", "there is a check %q already, at %s", d.Name.S, first)
			}
			names[d.Name.S] = d.Name.At
			one := Check{HealthCheck: d.compile(), Written: written.List[i]}
			c.In("nodes", func() { one.sets = m.PickSets(c, d.Nodes) })
			if d.Name.Set() { // else that is said already
				c.ValidFields(d.At, d.places(), rules.HealthCheck(one.HealthCheck))
			}
			out = append(out, one)
		})
	}
	slices.SortFunc(out, func(a, b Check) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

func (d CheckDoc) compile() spec.HealthCheck {
	h := spec.HealthCheck{Name: d.Name.S, Unit: d.Unit.S, TCP: d.TCP.S, HTTP: d.HTTP.S, Status: int(d.Status.N), File: d.File.S,
		Timeout: usualTimeout, Interval: usualInterval, Retries: usualRetries, Soak: int64(d.Soak.D / time.Second), Watch: d.Watch.On}
	for _, word := range d.Command {
		h.Command = append(h.Command, word.S)
	}
	if d.Timeout.Set() {
		h.Timeout = int64(d.Timeout.D / time.Second)
	}
	if d.Interval.Set() {
		h.Interval = int64(d.Interval.D / time.Second)
	}
	if d.Retries.Set() {
		h.Retries = d.Retries.N
	}
	return h
}

func (d CheckDoc) places() map[string]report.Pos {
	at := map[string]report.Pos{"name": d.Name.At, "unit": d.Unit.At, "tcp": d.TCP.At, "http": d.HTTP.At, "status": d.Status.At, "file": d.File.At,
		"timeout": d.Timeout.At, "interval": d.Interval.At, "retries": d.Retries.At, "soak": d.Soak.At}
	if len(d.Command) > 0 {
		at["command"] = d.Command[0].At
	}
	return at
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
