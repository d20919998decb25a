// SPDX-License-Identifier: Apache-2.0

package module

import (
	"path"
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

var sysfsModule = Module{Name: "sysfs", Doc: reflect.TypeFor[shape.Raw[shape.Map[shape.Text]]](), About: "attributes of the kernel and its devices below /sys, and affinities below /proc/irq",
	Normal: normalSysfs, Compile: (*Checker).sysfs,
	Keys: func(i *spec.Items) (keys []string) {
		for _, s := range i.Sysfs {
			keys = append(keys, s.Path)
		}
		return keys
	},
	Lines: func(i *spec.Items) (out []Line) {
		for _, s := range i.Sysfs {
			text := s.Value
			if text == "" {
				text = `""` // an empty value must not read as none
			}
			if s.Optional {
				text += " (if there)"
			}
			out = append(out, Line{s.Path, text})
		}
		return out
	},
}

// normalSysfs cleans paths, so that two spellings of one meet when maps are
// merged. A leading "-" (optional) stays.
func normalSysfs(c *shape.Checker, v *tree.Value) *tree.Value {
	return c.Rename(v, optionally(func(name string) string {
		if rules.AuthoredPath(name) != nil {
			return name // reported when it is compiled
		}
		return path.Clean(name)
	}))
}

func (c *Checker) sysfs(v *tree.Value, f *Fragment) {
	var keys shape.Map[shape.Text]
	c.Decode(v, &keys)
	c.optionals(keys, "path", func(name string, optional bool, e shape.Entry[shape.Text]) {
		s := spec.Sysfs{Path: name, Value: strings.TrimRight(e.Val.S, "\n\r"), Optional: optional}
		c.ValidFields(e.Key.At, map[string]report.Pos{"value": e.Val.At}, rules.Sysfs(s))
		f.Items.Sysfs = append(f.Items.Sysfs, s)
	})
	slices.SortFunc(f.Items.Sysfs, func(a, b spec.Sysfs) int { return strings.Compare(a.Path, b.Path) })
}
