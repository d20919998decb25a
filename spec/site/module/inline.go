// SPDX-License-Identifier: Apache-2.0

package module

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/digest"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// reader returns the content of a file beside the site. It reports what it cannot
// read, and returns "" for it.
type reader func(name string, at report.Pos) string

// inlineEntries replaces, in each entry of a map, the keys that name a file by the
// keys that hold its content: keys has the one by the other.
func inlineEntries(c *shape.Checker, v *tree.Value, read reader, keys map[string]string) *tree.Value {
	if v.Kind != tree.Mapping {
		return v
	}
	out := *v
	out.Fields = slices.Clone(v.Fields)
	for i := range out.Fields {
		f := &out.Fields[i]
		c.In(f.Key, func() {
			for from, to := range keys {
				name := f.Val.Get(from)
				switch {
				case name == nil || name.Kind != tree.Scalar:
				case f.Val.Get(to) != nil:
					c.Errorf(name.At, "contradiction", "keep one of the two", "%s and %s are both given", from, to)
				default:
					c.In(from, func() { f.Val = f.Val.Without(from).With(to, content(name, read)) })
				}
			}
		})
	}
	return &out
}

// content returns the content of the file that a value names, in the value's place.
func content(name *tree.Value, read reader) *tree.Value {
	out := *name
	out.Text, out.Plain = read(name.Text, name.At), false
	return &out
}

// identity returns a value in a few characters: what must not or need not be
// shown still shows when it changes.
func identity(v any) string {
	data, err := spec.Encode(v)
	if err != nil {
		panic(err) // plain data
	}
	return digest.Short(data)
}

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
