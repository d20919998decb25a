// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/service"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec/rules"
)

// orderFile is the drop-in in which the order of mounts stands.
const orderFile = paths.Prefix + "mounts.conf"

// order makes units wait for the mounts that come before them, and for secrets that the agent
// opens, and the agent,
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
	for _, u := range n.Overlay.Items.Units {
		if n.SecretsLater && len(u.SecretNames()) > 0 {
			before[u.Name] = true
		}
	}
	for _, unit := range slices.Sorted(maps.Keys(before)) {
		if slices.Contains(rules.WaitingUnits, unit) {
			continue // the agent's own unit says so
		}
		if service.Early(n.Root, unit) {
			n.Say("no mount and no secret comes before %s: it starts before the agent, which makes them", unit)
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

// early marks a root in which something is set before services start: in all others its unit
// does not start a program. One of a layer that has no such unit does not read it.
func (n *Node) early() error {
	if early := n.Overlay.Items.Early(); early.IsEmpty() {
		return nil
	}
	return n.write(paths.Early, nil, 0o644)
}

// stay keeps systemd from unmounting what it cannot: images of this root, or of the one
// before, are open where the loader and the agent have the state disk. A soft-reboot leaves
// these mounts behind with the old root, a shutdown makes them read-only in the end; each
// would fail before, in red. See systemd-soft-reboot.service(8).
func (n *Node) stay() error {
	if !n.Disk {
		return nil
	}
	for _, at := range []string{paths.RunDisk, paths.State} {
		unit := strings.ReplaceAll(strings.TrimPrefix(at, "/"), "/", "-") + ".mount" // neither has what systemd-escape(1) changes
		if err := n.write("/etc/systemd/system/"+unit+".d/"+paths.Prefix+"stay.conf", []byte("[Unit]\nDefaultDependencies=no\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (n *Node) dropIn(unit string, lines ...string) error {
	return n.write("/etc/systemd/system/"+unit+".d/"+orderFile, []byte("[Unit]\n"+strings.Join(lines, "\n")+"\n"), 0o644)
}
