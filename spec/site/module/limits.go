// SPDX-License-Identifier: Apache-2.0

package module

import (
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// limitDoc has an example.
type limitDoc spec.Limit

var limitsModule = Module{Name: "limits", Doc: reflect.TypeFor[shape.Raw[shape.Map[limitDoc]]](), About: "lines of limits.conf(5)",
	Compile: (*Checker).limits,
	Paths:   []string{"/etc/security/limits.d/60-caisson-*"},
	Lines: func(i *spec.Items) []Line {
		return plain.Each(i.Limits, func(l spec.Limit) Line { return Line{l.ID, l.Domain + " " + l.Type + " " + l.Item + " " + l.Value} })
	},
}

func (c *Checker) limits(v *tree.Value, f *Fragment) {
	seen := map[[3]string]shape.Text{}
	shape.Entries(c.Checker, v, func(e shape.Entry[limitDoc]) {
		limit, at := spec.Limit(e.Val), v.Get(e.Key.S)
		if limit.Item == "" || limit.Domain == "" || limit.Value == "" || limit.Type == "" {
			c.emptyTexts(at, "domain", "type", "item", "value")
			return
		}
		limit.ID = e.Key.S
		c.ValidIn(e.Key.At, at, rules.Limit(limit))
		kinds := []string{limit.Type}
		if limit.Type == "-" {
			kinds = []string{"hard", "soft"}
		}
		for _, kind := range kinds {
			key := [3]string{limit.Domain, kind, limit.Item}
			if first, dup := seen[key]; dup {
				c.Warnf(e.Key.At, "duplicate", "", "the same limit is set by %s at %s; the last name in order wins", first.S, first.At)
				break
			}
			seen[key] = e.Key
		}
		f.Owns[rules.LimitFile(limit.ID)] = e.Key.At
		f.Items.Limits = append(f.Items.Limits, limit)
	})
	slices.SortFunc(f.Items.Limits, func(a, b spec.Limit) int { return strings.Compare(a.ID, b.ID) })
}

// emptyTexts reports texts that are written but empty.
func (c *Checker) emptyTexts(v *tree.Value, keys ...string) {
	for _, key := range keys {
		if at := c.At(v, key); at != (report.Pos{}) && v.Get(key).Text == "" {
			c.Errorf(at, "required", "", "the value is empty")
		}
	}
}
