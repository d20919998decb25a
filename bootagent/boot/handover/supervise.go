// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"time"

	"github.com/caisson-os/caisson/bootagent/boot/identity"
	"github.com/caisson-os/caisson/internal/paths"
)

// proveWithin is how long a new generation has, from the start of the new root's
// init, until the agent has applied it; its scripts' own timeouts come on top.
const proveWithin = 15 * time.Minute

// noSoftReboot keeps somebody from a soft-reboot by hand: it ends every mount of this
// root, and with them the state disk, what is kept on it and the agent. See
// systemd-soft-reboot.service(8).
const noSoftReboot = "[Unit]\nDescription=Soft reboot (by hand it is refused by caisson: it would lose the node's state; caisson-agent reboot does not)\nRefuseManualStart=yes\n"

// softReboot is the agent's own way there, when it has made the next root. What is asked
// for by another unit is not refused.
const softReboot = "[Unit]\nDescription=Soft reboot into the root that caisson has made\nDefaultDependencies=no\nRequires=soft-reboot.target\nAfter=soft-reboot.target\n" +
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
	if err := n.write("/etc/systemd/system/soft-reboot.target.d/"+paths.Prefix+"refuse.conf", []byte(noSoftReboot), 0o644); err != nil {
		return err
	}
	if err := n.write("/etc/systemd/system/"+paths.SoftReboot, []byte(softReboot), 0o644); err != nil {
		return err
	}
	within := n.deadline()
	if within == 0 {
		return nil
	}
	for name, text := range map[string]string{
		"caisson-deadline.timer": "[Unit]\nDescription=Deadline of a new generation, while /run/caisson/deadline exists\nDefaultDependencies=no\n" +
			"Conflicts=shutdown.target\nBefore=shutdown.target\nConditionPathExists=" + paths.RunDeadline + "\n\n[Timer]\nAccuracySec=1s\n" +
			fmt.Sprintf("OnActiveSec=%d\n", int(within.Seconds())), // systemd has started long ago after a soft-reboot
		"caisson-deadline.service": "[Unit]\nDescription=Start over: this boot has not proved its generation\nDefaultDependencies=no\n" +
			"ConditionPathExists=" + paths.RunDeadline + "\nSuccessAction=reboot-force\nFailureAction=reboot-force\n\n" +
			"[Service]\nType=oneshot\nTimeoutStartSec=20\nExecStart=-" + paths.Agent + " " + paths.NoteDeadline + "\n",
		"target.d/" + paths.Prefix + "deadline.conf": "[Unit]\nWants=caisson-deadline.timer\n",
	} {
		if err := n.write("/etc/systemd/system/"+name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// deadline returns how long this boot has to prove its generation, 0 for ever. Only
// a new generation has one, see the loader's begin.
func (n *Node) deadline() time.Duration {
	within := identity.Seconds(n.Overlay.KernelArgs, "caisson.deadline", proveWithin)
	if !n.Unproven || within == 0 {
		return 0
	}
	return within + n.Overlay.Items.ScriptTime()
}
