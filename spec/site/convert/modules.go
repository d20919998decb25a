// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"strings"

	"github.com/caisson-os/caisson/spec/rules"
)

// readModulesLoad reads modules-load.d(5): a module a line.
func readModulesLoad(r *reading) {
	r.lines("#;", func(n int, line string) {
		if strings.ContainsAny(line, " \t") {
			r.miss(n, line, "it is not the name of a module")
			return
		}
		name := rules.ModuleName(line)
		r.take(n, line, "modules", "load "+name, []string{"load", appended}, name)
	})
}

// readModprobe reads modprobe.d(5).
func readModprobe(r *reading) {
	r.lines("#", func(n int, line string) {
		words := strings.Fields(line)
		if len(words) < 2 {
			r.miss(n, line, "it names no module")
			return
		}
		name := rules.ModuleName(words[1])
		switch words[0] {
		case "blacklist":
			r.take(n, line, "modules", "blacklist "+name, []string{"blacklist", appended}, name)
		case "options":
			for _, option := range words[2:] {
				key, value, ok := strings.Cut(option, "=")
				if !ok || strings.ContainsAny(option, `"'`) {
					r.miss(n, line, option+": write it to modules.parameters as NAME: VALUE")
					continue
				}
				r.take(n, line, "modules", "option "+name+" "+key, []string{"parameters", name, key}, value)
			}
			if len(words) == 2 {
				r.miss(n, line, "it has no options")
			}
		case "install", "remove":
			r.miss(n, line, "a site has no commands for modules: blacklist keeps one from loading by itself, and module_blacklist=NAME in layer.kernel.args from loading at all")
		default:
			r.miss(n, line, words[0]+" has no counterpart in a site: a file below /etc/modprobe.d in conf.files has it")
		}
	})
}
