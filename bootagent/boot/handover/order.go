// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/identity"
	"github.com/caisson-os/caisson/bootagent/items/units"
	"github.com/caisson-os/caisson/internal/cli"
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
	o := ordering{units.ReadOrder(n.Root), map[string][]string{}}
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
	units *units.Order
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
		unit := units.MountUnit(at)
		if err := n.write("/etc/systemd/system/"+unit+".d/"+paths.Prefix+"stay.conf",
			[]byte("[Unit]\nDefaultDependencies=no\n"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// proveWithin is how long a new generation has, from the start of the new root's
// init, until the agent has applied it; what its scripts take comes on top, each within its
// timeout.
const proveWithin = 15 * time.Minute

// noSoftReboot keeps an operator from a soft-reboot by hand: it ends every mount of this
// root, and with them the state disk, what is kept on it and the agent. See
// systemd-soft-reboot.service(8).
const noSoftReboot = "[Unit]\n" +
	"Description=Soft reboot (by hand it is refused by caisson: it would lose the node's state; caisson-agent reboot does not)\n" +
	"RefuseManualStart=yes\n"

// softReboot is the agent's own way there, when it has made the next root. What is asked
// for by another unit is not refused.
const softReboot = "[Unit]\nDescription=Soft reboot into the root that caisson has made\nDefaultDependencies=no\n" +
	"Requires=soft-reboot.target\nAfter=soft-reboot.target\n" +
	"JobTimeoutSec=10min\nJobTimeoutAction=reboot-force\n"

// supervise has the machine start over where nobody would come to do it: when PID 1
// no longer feeds the watchdog that the loader has started, when it crashes, and when
// a new generation never proves itself. The latter is a timer that every target pulls
// in, emergency.target too, and that acts for as long as the agent has not deleted
// paths.RunDeadline. See systemd-system.conf(5), systemd.timer(5).
func (n *Node) supervise() error {
	manager := "[Manager]\nCrashReboot=yes\n"
	if n.Watchdog > 0 {
		manager += fmt.Sprintf("RuntimeWatchdogSec=%d\n", int(n.Watchdog.Seconds()))
	}
	if err := n.write("/etc/systemd/system.conf.d/"+paths.Prefix+"supervise.conf", []byte(manager), 0o644); err != nil {
		return err
	}
	units := n.deadlineUnits()
	units["soft-reboot.target.d/"+paths.Prefix+"refuse.conf"], units[paths.SoftReboot] = noSoftReboot, softReboot
	for name, text := range units {
		if err := n.write("/etc/systemd/system/"+name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// deadlineUnits are the units that start the machine over, by name. They are in each root, as a
// soft-reboot from one that counts carries its timers into the next; where a boot may take for
// ever no target pulls them in, and without paths.RunDeadline they do nothing.
//
// No boot takes longer than it has beside all that its scripts may take: that asks nobody.
// What of that they did not take is asked of the agent, from when the boot has had its own
// time on. Where the agent does not run, it is over; one of 0.9.0 does not know the question.
func (n *Node) deadlineUnits() map[string]string {
	within, scripts := n.deadline()
	begun := int(cmp.Or(within, proveWithin).Seconds())
	const (
		head = "DefaultDependencies=no\nConditionPathExists=" + paths.RunDeadline + "\n"
		// systemd has started long ago after a soft-reboot
		timer   = head + "Conflicts=shutdown.target\nBefore=shutdown.target\n\n[Timer]\nAccuracySec=1s\n"
		service = "\n[Service]\nType=oneshot\nTimeoutStartSec=20\n"
	)
	units := map[string]string{
		"caisson-deadline.timer": "[Unit]\nDescription=Deadline of a new generation, while /run/caisson/deadline exists\n" + timer +
			fmt.Sprintf("OnActiveSec=%d\n", begun+int(scripts.Seconds())),
		"caisson-deadline.service": "[Unit]\nDescription=Start over: this boot has not proved its generation\n" + head +
			"SuccessAction=reboot-force\nFailureAction=reboot-force\n" + service + "ExecStart=-" + paths.Agent + " " + paths.NoteDeadline + "\n",
		"caisson-deadline-early.timer": "[Unit]\nDescription=Deadline of a new generation, where its scripts have ended\n" + timer +
			fmt.Sprintf("OnActiveSec=%d\nOnUnitInactiveSec=10\n", begun),
		"caisson-deadline-early.service": "[Unit]\nDescription=Ask whether this boot waits for a script\n" + head +
			"OnFailure=caisson-deadline.service\n" + service + fmt.Sprintf("SuccessExitStatus=%d\nExecStart=%s %s %d\n",
			cli.ExitUsage, paths.Agent, paths.DeadlineOver, begun),
	}
	wants := ""
	if within > 0 {
		wants = "Wants=caisson-deadline.timer\n"
	}
	if scripts > 0 {
		wants += "Wants=caisson-deadline-early.timer\n"
	}
	if wants != "" {
		units["target.d/"+paths.Prefix+"deadline.conf"] = "[Unit]\n" + wants
	}
	return units
}

// deadline returns how long this boot has to prove its generation, 0 for ever, and how long
// its scripts may take on top. Only a new generation has one, see the loader's begin.
func (n *Node) deadline() (within, scripts time.Duration) {
	within = identity.Seconds(n.Overlay.KernelArgs, "caisson.deadline", proveWithin)
	if !n.Unproven || within == 0 {
		return 0, 0
	}
	return within, n.Overlay.Items.ScriptTime()
}

// withImages lets the agent's service have more memory than it needs for itself.
const withImages = "[Service]\nMemoryHigh=infinity\nMemoryMax=90%\n"

// memory lets the agent of a node without a disk bring images into memory: what a service
// writes there counts as its own, and past its unit's limits the kernel would kill it. How
// much it brings has a rule of its own, see swap.Memory.
func (n *Node) memory() error {
	if n.Disk {
		return nil
	}
	return n.write("/etc/systemd/system/"+paths.AgentService+".d/"+paths.Prefix+"memory.conf", []byte(withImages), 0o644)
}
