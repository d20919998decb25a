// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec/rules"
)

// orderFile is the drop-in in which the order of mounts stands.
const orderFile = paths.Prefix + "mounts.conf"

// order makes units wait for the mounts that come before them, and the agent,
// which mounts, wait for the units that come before a mount. An order that would
// be a circle is left out and said: systemd would break it anywhere, and the
// agent could be what it leaves out.
func (n *Node) order() error {
	before, after := map[string]bool{}, map[string]bool{}
	for _, m := range n.Overlay.Items.Mounts {
		for _, u := range m.Before {
			before[u] = true
		}
		for _, u := range m.After {
			after[u] = true
		}
	}
	for _, unit := range slices.Sorted(maps.Keys(before)) {
		if slices.Contains(rules.WaitingUnits, unit) {
			continue // the agent's own unit says so
		}
		if n.early(unit) {
			n.Say("no mount comes before %s: it starts before the agent, which mounts", unit)
			continue
		}
		if err := n.dropIn(unit, "After="+paths.AgentService); err != nil {
			return err
		}
	}
	var lines []string
	for _, unit := range slices.Sorted(maps.Keys(after)) {
		if before[unit] || slices.Contains(rules.WaitingUnits, unit) || slices.Contains(rules.LateUnits, unit) {
			n.Say("no mount comes after %s: it starts after the agent, which mounts", unit)
			continue
		}
		lines = append(lines, "After="+unit)
		if strings.HasSuffix(unit, ".target") { // which nothing else may ask for
			lines = append(lines, "Wants="+unit)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	return n.dropIn(paths.AgentService, lines...)
}

func (n *Node) dropIn(unit string, lines ...string) error {
	return n.write("/etc/systemd/system/"+unit+".d/"+orderFile, []byte("[Unit]\n"+strings.Join(lines, "\n")+"\n"), 0o644)
}

// early reports whether the agent's unit is ordered after unit, as far as its
// name and its file say.
func (n *Node) early(unit string) bool {
	if slices.Contains(rules.EarlyUnits, unit) {
		return true
	}
	file := unit
	if name, instance, ok := strings.Cut(unit, "@"); ok { // of a template
		file = name + "@" + instance[strings.LastIndexByte(instance, '.'):]
	}
	for _, dir := range []string{"/etc/systemd/system/", "/usr/lib/systemd/system/"} {
		text, err := os.ReadFile(n.path(dir + file))
		if err != nil {
			continue // a unit that is not there starts never
		}
		for line := range strings.Lines(string(text)) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
			switch strings.TrimSpace(key) {
			case "DefaultDependencies":
				if on := strings.ToLower(strings.TrimSpace(value)); on == "no" || on == "false" || on == "off" || on == "0" {
					return true
				}
			case "Before":
				for other := range strings.FieldsSeq(value) {
					if slices.Contains(rules.EarlyUnits, other) || other == paths.AgentService {
						return true
					}
				}
			}
		}
		return false
	}
	return false
}
