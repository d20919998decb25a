// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/rules"
)

// readTuned reads a profile of tuned(8): kernel parameters, attributes below /sys, modules
// and arguments of the kernel.
func readTuned(r *reading) {
	for _, s := range r.sections() {
		plugin, off, goesOn := s.name, false, r.goesOn(s.lines)
		for n := range s.lines {
			l := &s.lines[n]
			_, value, _ := strings.Cut(inline.ReplaceAllString(l.line, ""), "=")
			l.value = strings.TrimSpace(value)
			switch {
			case l.key == "type":
				plugin = l.value
			case l.key == "enabled":
				off = !flag(l.value)
			}
		}
		for _, l := range s.lines {
			take := tunedPlugins[plugin]
			switch {
			case plugin == "main" && (l.key == "summary" || l.key == "description"), l.key == "type" && take != nil, l.key == "enabled" && !off:
				r.Item(l.n, l.line).Taken = true // it says nothing to a machine
			case plugin == "main" && l.key == "include":
				r.Miss(l.n, l.line, "import that profile, too, before this one")
			case off:
				r.Miss(l.n, l.line, "its section is not enabled")
			case goesOn[l.n]:
				r.Miss(l.n, l.line, "a value of several lines is not read: join them")
			case take == nil || slices.Contains([]string{"devices", "devices_udev_regex", "priority", "replace"}, l.key):
				r.Miss(l.n, l.line, "["+s.name+"] "+l.key+" has no counterpart in a site")
			case strings.Contains(l.value, "${"):
				r.Miss(l.n, l.line, "write what the variable stands for")
			default:
				take(r, l)
			}
		}
	}
}

// goesOn returns the lines of values that have several: those with a deeper indent, as Python's
// ConfigParser joins them, or after a backslash. Each gets the key of its value.
func (r *reading) goesOn(lines []setting) map[int]bool {
	all, out := strings.Split(r.Data, "\n"), map[int]bool{}
	indent, before := 0, setting{}
	for i, l := range lines {
		text := all[l.n-1]
		blanks := len(text) - len(strings.TrimLeft(text, " \t"))
		if i > 0 && (blanks > indent || strings.HasSuffix(lines[i-1].line, `\`)) {
			out[before.n], out[l.n], lines[i].key = true, true, before.key
			continue
		}
		indent, before, out[l.n] = blanks, l, strings.HasSuffix(l.line, `\`)
	}
	return out
}

// inline is a comment at the end of a line, unquoted what stands in quotes whole, arguments
// those of a kernel, in which quotes hold blanks.
var (
	inline    = regexp.MustCompile(`\s#.*$`)
	unquoted  = regexp.MustCompile(`^"(.*)"$`)
	arguments = regexp.MustCompile(`(?:[^\s"]|"[^"]*"?)+`)
)

// hugepages are files of transparent_hugepage by the words of [vm].
var hugepages = map[string]string{"transparent_hugepages": "enabled", "transparent_hugepage": "enabled",
	"transparent_hugepage.defrag": "defrag"}

// tunedPlugins take a line each of a plugin's section.
var tunedPlugins = map[string]func(r *reading, l setting){
	"sysctl": func(r *reading, l setting) {
		if strings.HasPrefix(l.value, ">") || strings.HasPrefix(l.value, "<") {
			r.Miss(l.n, l.line, "it is a bound, and a site has values")
			return
		}
		r.sysctl(l.n, l.line, l.key, unquoted.ReplaceAllString(l.value, "$1"), false)
	},
	"sysfs": func(r *reading, l setting) { r.sysfs(l.n, l.line, l.key, l.value) },
	"vm": func(r *reading, l setting) {
		if hugepages[l.key] == "" {
			r.Miss(l.n, l.line, "[vm] "+l.key+" has no counterpart in a site")
			return
		}
		r.sysfs(l.n, l.line, "/sys/kernel/mm/transparent_hugepage/"+hugepages[l.key], l.value)
	},
	"modules": func(r *reading, l setting) {
		options := strings.Fields(strings.TrimPrefix(unquoted.ReplaceAllString(l.value, "$1"), "+r"))
		if len(options) == 0 {
			r.loaded(l.n, l.line, l.key)
		}
		for _, option := range options {
			r.moduleOption(l.n, l.line, l.key, option)
		}
	},
	"bootloader": func(r *reading, l setting) {
		value := unquoted.ReplaceAllString(l.value, "$1")
		if !strings.HasPrefix(l.key, "cmdline") || strings.HasPrefix(value, "-") {
			r.Miss(l.n, l.line, "a kernel has the arguments of the site and no others")
			return
		}
		for _, arg := range arguments.FindAllString(strings.TrimPrefix(value, "+"), -1) {
			r.kernelArg(l.n, l.line, arg)
		}
	},
}

// sysfs takes an attribute of one path.
func (r *reading) sysfs(n int, line, path, value string) {
	if strings.ContainsAny(path, "*?[") {
		r.Miss(n, line, "a site has no patterns: write the paths that it stands for")
		return
	}
	r.Item(n, line).Take("sysfs", path, []string{path}, value)
}

// loaded takes a module that is loaded at boot.
func (r *reading) loaded(n int, line, name string) {
	name = rules.ModuleName(name)
	r.Item(n, line).Take("modules", "load "+name, []string{"load", appended}, name)
}

// moduleOption takes a parameter of a module, as modprobe.d(5) has it.
func (r *reading) moduleOption(n int, line, module, option string) {
	key, value, ok := strings.Cut(option, "=")
	if !ok || strings.ContainsAny(option, `"'`) {
		r.Miss(n, line, option+": write it to modules.parameters as NAME: VALUE")
		return
	}
	module = rules.ModuleName(module)
	r.Item(n, line).Take("modules", "option "+module+" "+key, []string{"parameters", module, key}, value)
}
