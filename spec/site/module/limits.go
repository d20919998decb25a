// SPDX-License-Identifier: Apache-2.0

package module

import (
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

type limitDoc struct {
	Domain shape.Text `site:"domain,required" doc:"user, @group, *, uid range as in 0:, see limits.conf(5)"`
	Type   shape.Text `site:"type,required" enum:"hard,soft,-"`
	Item   shape.Text `site:"item,required"`
	Value  shape.Text `site:"value,required" doc:"a number, unlimited, infinity or -1"`
	At     report.Pos
}

var limitsModule = Module{Name: "limits", Doc: reflect.TypeFor[shape.Raw[shape.Map[limitDoc]]](), About: "lines of limits.conf(5)",
	Compile: (*Checker).limits,
	Paths:   []string{"/etc/security/limits.d/60-caisson-*"},
	Lines: func(i *spec.Items) (out []Line) {
		for _, l := range i.Limits {
			out = append(out, Line{l.ID, l.Domain + " " + l.Type + " " + l.Item + " " + l.Value})
		}
		return out
	},
}

// checkID reports whether an author's key can be part of a file's name.
func (c *Checker) checkID(t shape.Text) bool { return c.Valid(t.At, rules.ID(t.S)) }

func (c *Checker) limits(v *tree.Value, f *Fragment) {
	var d shape.Map[limitDoc]
	c.Decode(v, &d)
	seen := map[[3]string]shape.Text{}
	for _, e := range d {
		c.In(e.Key.S, func() {
			l := e.Val
			if l.Item.S == "" || l.Domain.S == "" || l.Value.S == "" || l.Type.S == "" {
				c.emptyTexts(l.Domain, l.Type, l.Item, l.Value)
				return
			}
			limit := spec.Limit{ID: e.Key.S, Domain: l.Domain.S, Type: l.Type.S, Item: l.Item.S, Value: l.Value.S}
			c.ValidFields(e.Key.At, map[string]report.Pos{"domain": l.Domain.At, "type": l.Type.At, "item": l.Item.At, "value": l.Value.At}, rules.Limit(limit))
			for _, kind := range limitKinds(l.Type.S) {
				key := [3]string{l.Domain.S, kind, l.Item.S}
				if first, dup := seen[key]; dup {
					c.Warnf(e.Key.At, "duplicate", "", "the same limit is set by %s at %s; the last name in order wins", first.S, first.At)
					break
				}
				seen[key] = e.Key
			}
			f.own(rules.LimitFile(limit.ID), e.Key.At)
			f.Items.Limits = append(f.Items.Limits, limit)
		})
	}
	slices.SortFunc(f.Items.Limits, func(a, b spec.Limit) int { return strings.Compare(a.ID, b.ID) })
}

func limitKinds(kind string) []string {
	if kind == "-" {
		return []string{"hard", "soft"}
	}
	return []string{kind}
}

// emptyTexts reports texts that are written but empty.
func (c *Checker) emptyTexts(texts ...shape.Text) {
	for _, t := range texts {
		if t.Set() && t.S == "" {
			c.Errorf(t.At, "required", "", "the value is empty")
		}
	}
}
