// SPDX-License-Identifier: Apache-2.0

package module

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// sysctlPath is the path below /proc/sys of a key in either spelling. As in
// sysctl.d(5) the first separator decides: after a dot, dots separate and a
// slash stands for a dot in a name; after a slash it is the other way round.
func sysctlPath(key string) string {
	i := strings.IndexAny(key, "./")
	if i < 0 || key[i] == '/' {
		return key
	}
	return strings.Map(func(c rune) rune {
		switch c {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return c
	}, key)
}

// sysctlDots is the spelling that sysctl(8) prints.
func sysctlDots(path string) string {
	return strings.Map(func(c rune) rune {
		switch c {
		case '.':
			return '/'
		case '/':
			return '.'
		}
		return c
	}, path)
}

// SysctlName is the one spelling of a key, that of sysctl(8), of any of its spellings.
func SysctlName(key string) string { return sysctlDots(sysctlPath(key)) }

// normalSysctl gives every key sysctl(8)'s spelling, so that two spellings of
// one key meet when maps are merged. A leading "-" (optional) stays.
func normalSysctl(c *shape.Checker, v *tree.Value) *tree.Value {
	return c.Rename(v, func(key string) string {
		key, optional := strings.CutPrefix(key, "-")
		key = SysctlName(key)
		if optional {
			key = "-" + key
		}
		return key
	})
}

func (c *Checker) sysctl(v *tree.Value, f *Fragment) {
	var keys shape.Map[shape.Text]
	c.Decode(v, &keys)
	byPath := map[string]report.Pos{}
	for _, e := range keys {
		c.In(e.Key.S, func() {
			key, optional := strings.CutPrefix(e.Key.S, "-")
			path := sysctlPath(key)
			if first, dup := byPath[path]; dup {
				c.Errorf(e.Key.At, "duplicate-key", "keep one of the two; an override must write the leading - as the base does", "the same key is given at %s", first)
				return
			}
			byPath[path] = e.Key.At
			switch {
			case !sysctlSafe(path):
				c.Errorf(e.Key.At, "sysctl-key", "as in vm.swappiness or net/ipv4/ip_forward", "%q is not a kernel parameter", key)
			case strings.ContainsAny(e.Val.S, "\n\r") && strings.TrimRight(e.Val.S, "\n\r") != strings.NewReplacer("\n", "", "\r", "").Replace(e.Val.S):
				c.Errorf(e.Val.At, "text", "", "a value must be one line")
			}
			c.dangerousSysctl(path, e)
			f.Items.Sysctl = append(f.Items.Sysctl, spec.Sysctl{Key: path, Value: strings.TrimRight(e.Val.S, "\n\r"), Optional: optional})
		})
	}
	slices.SortFunc(f.Items.Sysctl, func(a, b spec.Sysctl) int { return strings.Compare(a.Key, b.Key) })
}

// sysctlSafe says whether a path stays below /proc/sys.
func sysctlSafe(path string) bool {
	if len(path) > 255 || !strings.Contains(path, "/") {
		return false
	}
	for _, part := range strings.Split(path, "/") {
		if part == "" || part == "." || part == ".." || strings.ContainsAny(part, " \t\n\x00") {
			return false
		}
	}
	return true
}

func (c *Checker) dangerousSysctl(path string, e shape.Entry[shape.Text]) {
	value := strings.TrimSpace(e.Val.S)
	switch {
	case path == "kernel/modules_disabled" && value == "1":
		c.Warnf(e.Val.At, "dangerous", "set it from a script that runs last", "no module can be loaded any more, and only a reboot undoes it")
	case path == "kernel/kexec_load_disabled" && value == "1":
		c.Warnf(e.Val.At, "dangerous", "", "the agent cannot change kernels by kexec any more; each such change needs a cold reboot")
	case path == "vm/overcommit_memory" && value == "2":
		c.Notef(e.Val.At, "dangerous", "", "programs fail to allocate when vm.overcommit_ratio is too low for them")
	case strings.Contains(value, "e+") && strings.ContainsAny(value[:1], "0123456789"):
		c.Errorf(e.Val.At, "scientific", "write the digits; a template engine may have changed them", "%q is not a value the kernel takes", value)
	}
}
