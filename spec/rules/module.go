// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// Files that a node writes for its modules. modprobe(8) reads files in the order of
// their names, and of one option the last value counts: ours sorts behind
// systemd.conf, which has options for bonding and dummy, and what packages bring.
const (
	ModulesLoadFile = "/etc/modules-load.d/60-caisson-modules.conf"
	ModprobeFile    = "/etc/modprobe.d/zz-caisson-modules.conf"
)

// ModuleName returns the name of a module as the kernel spells it.
func ModuleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// Module checks the name of a kernel module, in the kernel's spelling.
func Module(name string) error {
	if len(name) > 55 || !spelled(name, lower+upper+digits+"_", lower+upper+digits+"_") {
		return invalid("module", "letters, digits, _ and -", "%.80q is not the name of a module", name)
	}
	return nil
}

// ModuleParameter checks a parameter of a module. Its value is one word of a line of
// modprobe.d(5).
func ModuleParameter(p spec.ModuleParameter) error {
	var f fields
	f.add("module", Module(p.Module))
	if len(p.Name) > 55 || !spelled(p.Name, lower+upper+digits+"_", lower+upper+digits+"_") {
		f.add("name", invalid("module-parameter", "as modinfo(8) prints it", "%.80q is not the name of a parameter", p.Name))
	}
	if len(p.Value) > 1024 || p.Value != "" && (!printable(p.Value) || strings.ContainsAny(p.Value, " \"'\\#")) {
		f.add("value", invalid("text", "one word without blanks, quotes, \\ and #", "%.80q is not the value of a parameter", p.Value))
	}
	return f.err()
}

// Modules checks the lists of modules; parameters are checked one by one.
func Modules(m spec.Modules) error {
	var f fields
	for _, name := range m.Load {
		f.add("load", Module(name))
		if slices.Contains(m.Blacklist, name) {
			f.add("load", invalid("contradiction", "keep one of the two", "module %s is to be loaded, and kept from being loaded", name))
		}
	}
	for _, name := range m.Blacklist {
		f.add("blacklist", Module(name))
	}
	return f.err()
}
