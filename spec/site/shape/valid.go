// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"slices"

	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Valid reports what a rule of package rules says about the value at at, and
// returns whether it says nothing.
func (c *Checker) Valid(at report.Pos, err error) bool {
	return c.ValidFields(at, nil, err)
}

// ValidFields is [Checker.Valid] for a value of several fields. Places holds where
// each was written, by its name in package spec; a field without a place is
// reported at at. A place that has an error already gets no second one.
func (c *Checker) ValidFields(at report.Pos, places map[string]report.Pos, err error) bool {
	for _, e := range rules.All(err) {
		where := places[e.Field]
		if where == (report.Pos{}) {
			where = at
		}
		if c.Failed(where) {
			continue
		}
		hint := e.Hint
		if e.Words != nil {
			hint = report.DidYouMean(e.Value, e.Words)
		}
		c.Errorf(where, e.Rule, hint, "%s", e.Message)
	}
	return err == nil
}

// Failed reports whether the value at at has an error already.
func (c *Checker) Failed(at report.Pos) bool {
	return slices.ContainsFunc(c.Report.Problems, func(p report.Problem) bool { return p.At == at && p.Severity == report.Error })
}
