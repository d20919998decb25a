// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
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

type kernelModulesDoc struct {
	Load       shape.Words                      `site:"load" doc:"modules that are loaded"`
	Parameters shape.Map[shape.Map[shape.Text]] `site:"parameters" doc:"parameters by module"`
	Blacklist  shape.Words                      `site:"blacklist" doc:"modules that the kernel does not load by itself"`
}

var modulesModule = Module{Name: "modules", Doc: reflect.TypeFor[shape.Raw[kernelModulesDoc]](),
	About: "kernel modules and their parameters",
	Paths: []string{rules.ModulesLoadFile, rules.ModprobeFile}, Normal: normalModules, Compile: (*Checker).modules,
	Lines: func(i *spec.Items) []Line {
		if i.Modules == nil {
			return nil
		}
		return slices.Concat(plain.Each(i.Modules.Load, func(name string) Line { return Line{name, "loaded"} }),
			plain.Each(i.Modules.Parameters, func(p spec.ModuleParameter) Line { return Line{p.Module + "." + p.Name, p.Value} }),
			plain.Each(i.Modules.Blacklist, func(name string) Line { return Line{name, "blacklisted"} }))
	},
}

// normalModules spells the modules of parameters as the kernel does, so that two
// spellings of one meet when maps are merged.
func normalModules(c *shape.Checker, v *tree.Value) *tree.Value {
	return c.Below(v, "parameters", func(all *tree.Value) *tree.Value { return c.Rename(all, rules.ModuleName) })
}

func (c *Checker) modules(v *tree.Value, f *Fragment) {
	d := shape.Read[kernelModulesDoc](c.Checker, v)
	var m spec.Modules
	for _, l := range []struct {
		name string
		from shape.Words
		to   *[]string
	}{{"load", d.Load, &m.Load}, {"blacklist", d.Blacklist, &m.Blacklist}} {
		c.In(l.name, func() {
			for n, name := range l.from.List {
				name = rules.ModuleName(name)
				if c.Valid(l.from.Each[n], rules.Module(name)) {
					*l.to = append(*l.to, name)
				}
			}
		})
		slices.Sort(*l.to)
		*l.to = slices.Compact(*l.to)
	}
	c.In("parameters", func() {
		for _, e := range d.Parameters {
			c.In(e.Key.S, func() {
				for _, p := range e.Val {
					c.In(p.Key.S, func() {
						x := spec.ModuleParameter{Module: e.Key.S, Name: p.Key.S, Value: p.Val.S}
						c.ValidFields(p.Key.At, map[string]report.Pos{"module": e.Key.At, "value": p.Val.At}, rules.ModuleParameter(x))
						m.Parameters = append(m.Parameters, x)
					})
				}
			})
		}
	})
	slices.SortFunc(m.Parameters, func(a, b spec.ModuleParameter) int {
		return cmp.Or(strings.Compare(a.Module, b.Module), strings.Compare(a.Name, b.Name))
	})
	c.ValidFields(d.Load.At, map[string]report.Pos{"load": d.Load.At}, rules.Modules(m))
	if len(m.Load)+len(m.Parameters)+len(m.Blacklist) > 0 {
		f.Items.Modules = &m
	}
}
