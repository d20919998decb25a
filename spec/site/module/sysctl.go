// SPDX-License-Identifier: Apache-2.0

package module

import (
	"cmp"
	"path"
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

var sysctlModule = Module{Name: "sysctl", Doc: reflect.TypeFor[shape.Raw[shape.Map[shape.Text]]](),
	About:  "kernel parameters, in dot or slash spelling",
	Normal: normalSysctl, Compile: (*Checker).sysctl,
	Keys: func(i *spec.Items) []string { return plain.Each(i.Sysctl, func(s spec.Sysctl) string { return s.Key }) },
	Lines: func(i *spec.Items) []Line {
		return plain.Each(i.Sysctl, func(s spec.Sysctl) Line { return Line{rules.SysctlName(s.Key), printed(s.Value, s.Optional)} })
	},
}

// printed returns a value as people read it.
func printed(value string, optional bool) string {
	value = cmp.Or(value, `""`) // an empty value must not read as none
	if optional {
		value += " (if there)"
	}
	return value
}

// normalSysctl gives every key sysctl(8)'s spelling, so that two spellings of
// one key meet when maps are merged. A leading "-" (optional) stays.
func normalSysctl(c *shape.Checker, v *tree.Value) *tree.Value {
	return c.Rename(v, optionally(func(key string) string { return rules.SysctlName(rules.SysctlPath(key)) }))
}

func (c *Checker) sysctl(v *tree.Value, f *Fragment) {
	given := map[string]shape.Entry[shape.Text]{}
	c.optionals(v, "key", func(key string, optional bool, e shape.Entry[shape.Text]) {
		path := rules.SysctlPath(key)
		given[path] = e
		value := strings.TrimRight(e.Val.S, "\n\r")
		s := spec.Sysctl{Key: path, Value: value, Optional: optional}
		places := map[string]report.Pos{"value": e.Val.At}
		valid := c.ValidFields(e.Key.At, places, rules.Sysctl(s))
		c.interfaceSysctl(path, e.Key.At)
		c.dangerousSysctl(path, e)
		if valid && e.Val.Set() {
			c.ValidFields(e.Key.At, places, rules.Settable(s))
		}
		f.Items.Sysctl = append(f.Items.Sysctl, s)
	})
	slices.SortFunc(f.Items.Sysctl, func(a, b spec.Sysctl) int { return strings.Compare(a.Key, b.Key) })
	one, other := rules.Contradict(func(key string) (string, bool) { e, there := given[key]; return e.Val.S, there })
	if one != "" {
		c.Errorf(given[other].Key.At, "contradiction", "leave one of them out",
			"the kernel sets %s when %s is written: it cannot have both values", rules.SysctlName(other), rules.SysctlName(one))
	}
}

// interfaceSysctl refuses keys of interfaces that no kernel can have: one whose
// name was cut at a dot, and a pattern.
func (c *Checker) interfaceSysctl(path string, at report.Pos) {
	parts := strings.Split(path, "/")
	if len(parts) < 4 || parts[0] != "net" || parts[2] != "conf" && parts[2] != "neigh" {
		return
	}
	switch {
	case strings.Contains(path, "*"):
		c.Errorf(at, "sysctl-key", "write default for interfaces to come, all for all, or name each", "a pattern is not a kernel parameter")
	case len(parts) > 5:
		name := strings.Join(parts[3:len(parts)-1], "/")
		c.Errorf(at, "sysctl-key", "write net."+parts[1]+"."+parts[2]+"."+name+"."+parts[len(parts)-1]+
			" for the interface "+strings.ReplaceAll(name, "/", "."),
			"there is no such kernel parameter: a dot in an interface's name is written as a slash")
	}
}

func (c *Checker) dangerousSysctl(path string, e shape.Entry[shape.Text]) {
	value := strings.TrimSpace(e.Val.S)
	switch {
	case path == "kernel/modules_disabled" && value == "1":
		c.Warnf(e.Val.At, "dangerous", "set it from a script that runs last", "no module can be loaded any more, and only a reboot undoes it")
	case path == "kernel/kexec_load_disabled" && value == "1":
		c.Warnf(e.Val.At, "dangerous", "",
			"the agent cannot change kernels by kexec any more; each such change needs a cold reboot, and so does undoing it")
	case rules.OneWay(path, value):
		c.Warnf(e.Val.At, "dangerous", "", "only a reboot undoes it: nodes keep the value also when it leaves the site")
	case path == "vm/overcommit_memory" && value == "2":
		c.Notef(e.Val.At, "dangerous", "", "programs fail to allocate when vm.overcommit_ratio is too low for them")
	case strings.Contains(value, "e+") && strings.ContainsAny(value[:1], "0123456789"):
		c.Errorf(e.Val.At, "scientific", "write the digits; a template engine may have changed them", "%q is not a value the kernel takes", value)
	}
}

var sysfsModule = Module{Name: "sysfs", Doc: reflect.TypeFor[shape.Raw[shape.Map[shape.Text]]](),
	About:  "attributes of the kernel and its devices below /sys, and affinities below /proc/irq",
	Normal: normalSysfs, Compile: (*Checker).sysfs,
	Keys: func(i *spec.Items) []string { return plain.Each(i.Sysfs, func(s spec.Sysfs) string { return s.Path }) },
	Lines: func(i *spec.Items) []Line {
		return plain.Each(i.Sysfs, func(s spec.Sysfs) Line { return Line{s.Path, printed(s.Value, s.Optional)} })
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
	c.optionals(v, "path", func(name string, optional bool, e shape.Entry[shape.Text]) {
		s := spec.Sysfs{Path: name, Value: strings.TrimRight(e.Val.S, "\n\r"), Optional: optional}
		c.ValidFields(e.Key.At, map[string]report.Pos{"value": e.Val.At}, rules.Sysfs(s))
		f.Items.Sysfs = append(f.Items.Sysfs, s)
	})
	slices.SortFunc(f.Items.Sysfs, func(a, b spec.Sysfs) int { return strings.Compare(a.Path, b.Path) })
}
