// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/bootagent/items/item/unitorder"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/rules"
)

// orderFile is the drop-in in which the order of mounts stands.
const orderFile = paths.Prefix + "mounts.conf"

// order makes units wait for the mounts that come before them, and for secrets that the agent
// opens; and what mounts, for the units that come before a mount: [paths.RemoteService] where
// those may come before remote-fs.target, else the agent. An order that would be a circle is
// left out and said: systemd would break it anywhere, and the agent could be what it leaves out.
func (n *Node) order() error {
	items := &n.Overlay.Items
	o := ordering{unitorder.Read(n.Root), map[string][]string{}}
	first := o.waitForAgent(items.Mounts)
	for _, u := range items.Units {
		if n.SecretsLater && len(u.SecretNames()) > 0 && !slices.Contains(rules.WaitingUnits, u.Name) && !o.after(u.Name, paths.AgentService) {
			n.Say("no secret comes before %s: it starts before the agent, which opens them", u.Name)
		}
	}
	never := func(u string) bool { return !o.units.After(paths.RemoteService, u) }
	remote := items.Remote(func(m spec.Mount) bool {
		return o.units.Has(paths.RemoteService) && !slices.ContainsFunc(m.After, never)
	})
	makers := map[string]string{} // by target; the agent makes all others
	for _, m := range items.Early().Mounts {
		makers[m.Target] = paths.EarlyService
	}
	for _, m := range remote {
		makers[m.Target] = paths.RemoteService
	}
	for _, m := range items.Mounts {
		n.comeAfter(o, m, cmp.Or(makers[m.Target], paths.AgentService))
	}
	for _, unit := range slices.Sorted(maps.Keys(first)) {
		for _, target := range first[unit] {
			if by := cmp.Or(makers[target], paths.AgentService); !o.after(unit, by) {
				n.Say("%s does not come before %s, which starts before %s", target, unit, by)
			}
		}
	}
	if len(remote) > 0 {
		o.lines[paths.AgentService] = append(o.lines[paths.AgentService], "Wants="+paths.RemoteService)
		var list strings.Builder
		for _, m := range remote {
			list.WriteString(m.Target + "\n")
		}
		if err := n.write(paths.Remote, []byte(list.String()), 0o644); err != nil {
			return err
		}
	}
	for _, unit := range slices.Sorted(maps.Keys(o.lines)) {
		slices.Sort(o.lines[unit])
		text := "[Unit]\n" + strings.Join(slices.Compact(o.lines[unit]), "\n") + "\n"
		if err := n.write("/etc/systemd/system/"+unit+".d/"+orderFile, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// comeAfter has what makes a mount wait for the units that come before it.
func (n *Node) comeAfter(o ordering, m spec.Mount, by string) {
	for _, u := range m.After {
		if !o.after(by, u) {
			n.Say("no mount comes after %s: it starts after the agent, which mounts", u)
		} else if strings.HasSuffix(u, ".target") { // which nothing else may ask for
			o.lines[by] = append(o.lines[by], "Wants="+u)
		}
	}
}

// ordering is the order of a root's units, and the lines of drop-ins that add to it, by unit.
type ordering struct {
	units *unitorder.Order
	lines map[string][]string
}

// after has a unit start after another one, and reports false where that would be a circle.
func (o ordering) after(unit, other string) bool {
	ok := o.units.After(unit, other)
	if ok {
		o.lines[unit] = append(o.lines[unit], "After="+other)
	}
	return ok
}

// waitForAgent has the units that mounts come before wait for the agent, and returns those
// that cannot, with the mounts that come before them.
func (o ordering) waitForAgent(mounts []spec.Mount) map[string][]string {
	first := map[string][]string{}
	for _, m := range mounts {
		for _, u := range m.Before {
			switch {
			case slices.Contains(rules.WaitingUnits, u): // the agent's own unit says so
			case strings.HasSuffix(u, ".target") || !o.after(u, paths.AgentService): // logins wait for targets, and the agent for scripts
				first[u] = append(first[u], m.Target)
			}
		}
	}
	return first
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
		unit := unitorder.MountUnit(at)
		if err := n.write("/etc/systemd/system/"+unit+".d/"+paths.Prefix+"stay.conf", []byte("[Unit]\nDefaultDependencies=no\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}
