// SPDX-License-Identifier: Apache-2.0

// Package conflict says what is done about a setting that others keep changing: how often
// it is set again before it is quarantined. Policies of a machine and operations of type
// realtime say it in the same words.
package conflict

import (
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// Check returns the budget that v says, nil where nothing is said, or not all of it.
func Check(c *shape.Checker, v *tree.Value, b *spec.Budget) *spec.Budget {
	none := report.Pos{}
	if b == nil || c.At(v, "corrections") == none || c.At(v, "per") == none {
		return nil
	}
	c.In("onConflict", func() {
		if !c.ValidIn(v.At, v, rules.Budget(*b)) {
			b = nil
		}
	})
	return b
}
