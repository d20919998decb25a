// SPDX-License-Identifier: Apache-2.0

package module

import (
	"strings"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// optionally spells a key that a "-" may stand before: what a kernel lacks of it is not an error.
func optionally(spell func(key string) string) func(key string) string {
	return func(key string) string {
		name, optional := strings.CutPrefix(key, "-")
		if name = spell(name); optional {
			name = "-" + name
		}
		return name
	}
}

// optionals calls do for each of such keys. One that is given twice is reported, by what it is.
func (c *Checker) optionals(keys shape.Map[shape.Text], what string, do func(name string, optional bool, e shape.Entry[shape.Text])) {
	given := map[string]report.Pos{}
	for _, e := range keys {
		c.In(e.Key.S, func() {
			name, optional := strings.CutPrefix(e.Key.S, "-")
			if first, dup := given[name]; dup {
				c.Errorf(e.Key.At, "duplicate-key", "keep one of the two; an override must write the leading - as the base does", "the same %s is given at %s", what, first)
				return
			}
			given[name] = e.Key.At
			do(name, optional, e)
		})
	}
}
