// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// settable are the directories whose attributes may be set. What lies elsewhere
// in /sys has an owner of its own: systemd (fs/cgroup), module parameters
// (module), firmware variables, suspending the machine (power), tracing.
var settable = []string{"/sys/block/", "/sys/bus/", "/sys/class/", "/sys/devices/", "/sys/fs/", "/sys/kernel/mm/", "/proc/irq/"}

// foreign are directories in these that other programs own.
var foreign = []string{"/sys/fs/cgroup/", "/sys/fs/bpf/", "/sys/fs/pstore/", "/sys/fs/resctrl/", "/sys/fs/selinux/", "/sys/fs/fuse/"}

// commands are attributes that do something when they are written and hold nothing.
var commands = []string{"uevent", "bind", "unbind", "remove", "rescan", "delete", "reset", "scan"}

// maxSysfs caps a value, in bytes: the kernel takes a page at most.
const maxSysfs = 4 << 10

// Sysfs checks an attribute below /sys, or the affinity of an interrupt.
func Sysfs(s spec.Sysfs) error {
	var f fields
	f.add("path", sysfsPath(s.Path))
	f.add("value", oneLine(s.Value))
	if len(s.Value) > maxSysfs {
		f.add("value", invalid("too-large", "", "a value must be at most %d KiB", maxSysfs>>10))
	}
	return f.err()
}

func sysfsPath(path string) error {
	within := func(dir string) bool { return strings.HasPrefix(path, dir) }
	last := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case Path(path) != nil || len(path) > 1024 || !printable(path):
		return invalid("path", "as in /sys/kernel/mm/transparent_hugepage/enabled", "%.150q is not an absolute, clean path", path)
	case within("/sys/module/"):
		return invalid("sysfs-path", "write it as a parameter of the module, in conf.modules", "%.150q is a parameter of a module", path)
	case strings.ContainsAny(path, "*?["):
		return invalid("sysfs-path", "name each", "a pattern is not the path of an attribute")
	case !slices.ContainsFunc(settable, within) || slices.ContainsFunc(foreign, within):
		return invalid("sysfs-path", "those below "+strings.Join(settable, " "), "%.150q is not an attribute that can be kept", path)
	case slices.Contains(commands, last):
		return invalid("sysfs-path", "a script can write to it", "%.150q is a command, not a value", path)
	}
	return nil
}
