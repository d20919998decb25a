// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// SysctlPath returns the path below /proc/sys of a key in either spelling. As in
// sysctl.d(5) the first separator decides: after a dot, dots separate and a
// slash stands for a dot in a name; after a slash it is the other way round.
func SysctlPath(key string) string {
	if i := strings.IndexAny(key, "./"); i < 0 || key[i] == '/' {
		return key
	}
	return swapped(key)
}

// SysctlName returns the key of a path below /proc/sys in sysctl(8)'s dotted
// spelling.
func SysctlName(path string) string { return swapped(path) }

// Spelled returns a difference for people and their tools, with its key as its
// author spells it: a kernel parameter in dots. Items and journals hold paths.
func Spelled(d spec.Drift) spec.Drift {
	if d.Item == "sysctl" {
		d.Key = SysctlName(d.Key)
	}
	return d
}

func swapped(s string) string {
	b := []byte(s)
	for i, c := range b {
		switch c {
		case '.':
			b[i] = '/'
		case '/':
			b[i] = '.'
		}
	}
	return string(b)
}

// maxSysctl caps a value, in bytes: no parameter of the kernel takes more.
const maxSysctl = 64 << 10

// Sysctl checks a kernel parameter; its key is a path below /proc/sys.
func Sysctl(s spec.Sysctl) error {
	var f fields
	f.add("key", refuse(!sysctlKey(s.Key), "sysctl-key", "as in vm.swappiness or net/ipv4/ip_forward", "%.150q is not a kernel parameter",
		SysctlName(s.Key)))
	f.add("value", oneLine(s.Value))
	f.add("value", refuse(len(s.Value) > maxSysctl, "too-large", "", "a value must be at most %d KiB", maxSysctl>>10))
	return f.err()
}

// ruled are kernel parameters of which the kernel sets the second when the first is written, and
// the other way round: to the same value, or, of two forms of one bound, to none.
var ruled = []struct {
	one, other string
	same       bool
}{
	{"net/ipv4/ip_forward", "net/ipv4/conf/all/forwarding", true},
	{"vm/dirty_bytes", "vm/dirty_ratio", false},
	{"vm/dirty_background_bytes", "vm/dirty_background_ratio", false},
	{"vm/overcommit_kbytes", "vm/overcommit_ratio", false},
}

// Contradict names two parameters that cannot have both the values that are wanted, "" where all
// can.
func Contradict(value func(key string) (string, bool)) (one, other string) {
	for _, r := range ruled {
		a, first := value(r.one)
		b, second := value(r.other)
		if first && second && a != b && (r.same || a != "0" && b != "0") {
			return r.one, r.other
		}
	}
	return "", ""
}

// sysctlKey reports whether a path stays below /proc/sys; nothing that is set
// lies in /proc/sys itself.
func sysctlKey(path string) bool {
	return len(path) <= 255 && strings.Contains(path, "/") && printable(path) && !strings.Contains(path, " ") &&
		!slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool { return part == "" || part == "." || part == ".." })
}

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
	f.add("value", refuse(len(s.Value) > maxSysfs, "too-large", "", "a value must be at most %d KiB", maxSysfs>>10))
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
