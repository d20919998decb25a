// SPDX-License-Identifier: Apache-2.0

package published

import (
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/check"
	"github.com/caisson-os/caisson/spec"
)

// Rules are all checks of a reader.
type Rules = rules

// Obey has a reader go by other rules.
func (r *Reader) Obey(rules *Rules) { r.rules = rules }

// AllNames lists the names of all checks.
func AllNames() []string {
	return slices.Concat(whole.absent.Names(), whole.index.Names(), whole.shard.Names(), whole.current.Names(), whole.overlay.Names(), whole.layers.Names(), whole.older.Names(), whole.clock.Names(), whole.past.Names())
}

// Recorded returns the rules with a note of the check that refuses.
func Recorded(by *string) *Rules {
	r := whole
	return &rules{record(r.absent, by), record(r.index, by), record(r.shard, by), record(r.current, by), record(r.overlay, by), record(r.layers, by), record(r.older, by), record(r.clock, by), record(r.past, by)}
}

func record[T any](l check.List[T], by *string) check.List[T] {
	out := slices.Clone(l)
	for i, c := range l {
		out[i].OK = func(v T) error {
			err := c.OK(v)
			if err != nil {
				*by = c.Name
			}
			return err
		}
	}
	return out
}

// Without returns the rules without a check, which puts there all the same what later checks read.
func Without(name string) *Rules {
	r := rules{whole.absent.Without(name), whole.index.Without(name), whole.shard.Without(name), whole.current.Without(name), whole.overlay.Without(name),
		whole.layers.Without(name), whole.older.Without(name), whole.clock.Without(name), whole.past.Without(name)}
	switch name {
	case "index signature":
		r.index = whole.index.With(name, func(l *looked) error {
			l.said.Fleet, l.said.IssuedAt, l.said.Expires = "metal-a", l.r.Now, l.r.Now.Add(time.Hour)
			return nil
		})
	case "index form":
		r.index = whole.index.With(name, func(l *looked) error { return spec.Decode(l.candidate.Document, &l.index) })
	case "past signature":
		r.past = whole.past.With(name, func(l *looked) error {
			l.said.Fleet = "metal-a"
			return nil
		})
	case "past form":
		r.past = whole.past.With(name, func(l *looked) error { return spec.Decode(l.candidate.Document, &l.index) })
	case "shard form":
		r.shard = whole.shard.With(name, func(l *lookedShard) error { return spec.Decode(l.document, &l.shard) })
	}
	return &r
}
