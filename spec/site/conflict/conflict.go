// SPDX-License-Identifier: Apache-2.0

// Package conflict says what is done about a setting that others keep changing: how often
// it is set again before it is quarantined. Policies of a machine and operations of type
// realtime say it in the same words.
package conflict

import (
	"time"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// BudgetDoc is that as it is written.
type BudgetDoc struct {
	Corrections shape.Number   `site:"corrections,required" doc:"how often a setting is set again before it is quarantined"`
	Per         shape.Duration `site:"per,required" doc:"time in which the corrections are counted"`
	At          report.Pos
}

// Compile returns nil where nothing is said, or not all of it.
func (d *BudgetDoc) Compile(c *shape.Checker) (b *spec.Budget) {
	if d == nil || !d.Corrections.Set() || !d.Per.Set() {
		return nil
	}
	c.In("onConflict", func() {
		b = &spec.Budget{Corrections: d.Corrections.N, Per: int64(d.Per.D / time.Second)}
		if !c.ValidFields(d.At, map[string]report.Pos{"corrections": d.Corrections.At, "per": d.Per.At}, rules.Budget(*b)) {
			b = nil
		}
	})
	return b
}
