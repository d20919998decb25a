// SPDX-License-Identifier: Apache-2.0

package vm

import "strings"

// lean are kernel arguments of guests in which nobody looks at how Debian starts: without
// what no test needs, of which each unit costs an emulated processor some tenths of a second.
// TestTry and TestLongBookwormFromCD start all of it. Their timer ticks at a
// steady rate: to program it for each next event costs the emulator a tenth of a boot.
var lean = strings.Fields("mitigations=off init_on_alloc=0 highres=off nohz=off udev.children_max=2 " +
	"systemd.ssh_auto=no systemd.gpt_auto=no systemd.getty_auto=no " + // listens on AF_VSOCK, looks for partitions, waits for a console
	masked("modprobe@configfs", "modprobe@drm", "modprobe@efi_pstore", "modprobe@fuse", // modules that nobody has a device for
		"systemd-logind", "systemd-resolved", // nobody looks for a name
		"kmod-static-nodes", "systemd-tmpfiles-setup-dev-early", "systemd-network-generator", "systemd-networkd-persistent-storage",
		"systemd-random-seed", "systemd-udev-load-credentials", "getty@tty1") +
	" systemd.mask=sys-fs-fuse-connections.mount systemd.mask=sys-kernel-config.mount systemd.mask=dev-hugepages.mount systemd.mask=dev-mqueue.mount")

// masked are arguments that mask services.
func masked(services ...string) string {
	return "systemd.mask=" + strings.Join(services, ".service systemd.mask=") + ".service"
}

// leanSite is an edit of the quickstart whose nodes have these arguments.
var leanSite = []string{"net.ifnames=0]", "net.ifnames=0, " + strings.Join(lean, ", ") + "]"}

// patient is an edit of it for tests that go to another layer: a busy host takes longer than a
// minute to bring one.
var patient = []string{"net.ifnames=0, ", "net.ifnames=0, caisson.patience=600, "}

// calm are kernel arguments of all guests, for busy hosts: the kernel does not panic where
// its timer seems to stand still, and a login does not wait for a manager of its user.
var calm = []string{"args: [console=ttyS0,", "args: [no_timer_check, systemd.mask=user@.service, console=ttyS0,"}

// noted has this source's programs note what they decide, see replays. The earlier release
// does not know the word.
var noted = []string{"args: [no_timer_check", "args: [caisson.decisions, no_timer_check"}
