// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"math/bits"
	"path"
	"regexp"
	"slices"
	"strconv"
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

var swapped = strings.NewReplacer(".", "/", "/", ".").Replace

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

// Settable checks that a kernel can take the value of a parameter, as far as that is known
// whatever the kernel. It is asked where a value is written. Nodes do not ask it: they take
// what a publisher let through, and say what the kernel answered.
func Settable(s spec.Sysctl) error {
	name := SysctlName(s.Key)
	if key, value, ok := strings.Cut(name, "="); ok {
		return &Error{Field: "key", Rule: "sysctl-key", Hint: "write " + strings.TrimSpace(key) + ": " +
			cmp.Or(strings.TrimSpace(value), `""`), Message: strconv.Quote(name) + " holds its value, too"}
	}
	if slices.Contains(writeOnly, s.Key) {
		return &Error{Field: "key", Rule: "sysctl-key", Hint: "a script of conf.exec, or an operation, writes it at its time",
			Message: name + " cannot be read: it does something once, and nothing shows that it was set"}
	}
	if slices.ContainsFunc(texts, func(pattern string) bool { return matches(pattern, s.Key) }) {
		return nil
	}
	value := strings.TrimSpace(s.Value)
	bad := func(hint string) error {
		return &Error{Field: "value", Rule: "sysctl-value", Hint: hint, Message: "the kernel does not take " +
			strconv.Quote(value) + " for " + name}
	}
	if slices.ContainsFunc(kernels, func(pattern string) bool { return matches(pattern, s.Key) }) {
		if number := map[string]string{"yes": "1", "on": "1", "true": "1", "enabled": "1", "no": "0", "off": "0",
			"false": "0", "disabled": "0"}[strings.ToLower(value)]; number != "" {
			return bad("write " + number)
		}
		if percent.MatchString(value) {
			return bad("a number, without %")
		}
	}
	if round := rounded[s.Key]; round != nil {
		if n, err := strconv.ParseInt(value, 0, 64); err == nil && n > 0 && round(n) != n {
			return &Error{Field: "value", Rule: "sysctl-value", Hint: "write " + strconv.FormatInt(round(n), 10),
				Message: "the kernel rounds " + strconv.Quote(value) + " for " + name + " up, and holds another value than asked for"}
		}
	}
	for _, r := range ranges {
		if !matches(r.pattern, s.Key) {
			continue
		}
		if n, err := strconv.ParseInt(value, 0, 64); err != nil || n < r.least || n > r.most {
			return bad("a number from " + strconv.FormatInt(r.least, 10) + " to " + strconv.FormatInt(r.most, 10))
		}
		return nil
	}
	if slices.ContainsFunc(numbers, func(pattern string) bool { return matches(pattern, s.Key) }) && !integers.MatchString(value) {
		return bad("a number, or several with blanks between")
	}
	return nil
}

var (
	percent  = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?%$`)
	integers = regexp.MustCompile(`^-?(0x[0-9a-fA-F]+|[0-9]+)([ \t]+-?(0x[0-9a-fA-F]+|[0-9]+))*$`)
)

// matches reports whether a path below /proc/sys is one of a pattern of [path.Match]; one
// that ends in a slash is of all below it.
func matches(pattern, name string) bool {
	if strings.HasSuffix(pattern, "/") {
		return strings.HasPrefix(name, pattern)
	}
	ok, err := path.Match(pattern, name)
	return ok && err == nil
}

// writeOnly are the parameters that do something when they are written and that nobody
// can read, see Documentation/admin-guide/sysctl of the kernel.
var writeOnly = []string{"net/ipv4/route/flush", "net/ipv6/route/flush", "vm/compact_memory", "vm/drop_caches"}

// texts are the parameters that hold words, of those that lie among numbers or take yes
// and no.
var texts = []string{"kernel/core_pattern", "kernel/domainname", "kernel/hostname", "kernel/hotplug",
	"kernel/modprobe", "kernel/poweroff_cmd",
	"kernel/printk_devkmsg", "kernel/seccomp/actions_logged", "net/ipv6/conf/*/stable_secret", "vm/numa_zonelist_order",
	"fs/binfmt_misc/", "net/netfilter/nf_log/", "net/core/default_qdisc", "net/ipv4/tcp_*congestion_control",
	"net/ipv4/tcp_fastopen_key", "net/mptcp/"}

// kernels are the directories whose parameters are the kernel's own: those that are not
// among texts take no yes or no and no percentage. What other modules bring may.
var kernels = []string{"fs/", "kernel/", "net/bridge/", "net/core/", "net/ipv4/", "net/ipv6/", "net/netfilter/", "net/unix/", "vm/"}

// numbers are the parameters that take one integer or several, whatever the kernel.
var numbers = []string{"vm/", "net/ipv4/conf/", "net/ipv6/conf/", "net/ipv4/neigh/", "net/ipv6/neigh/",
	"net/ipv4/ip_forward", "net/core/[rw]mem_*", "net/core/somaxconn",
	"net/core/netdev_max_backlog", "net/ipv4/tcp_[rw]mem", "net/ipv4/ip_local_port_range", "net/ipv4/tcp_syncookies",
	"net/ipv4/tcp_timestamps",
	"net/netfilter/nf_conntrack_*", "fs/file-max", "fs/nr_open", "fs/aio-max-nr", "fs/inotify/", "fs/suid_dumpable",
	"kernel/pid_max", "kernel/threads-max", "kernel/sysrq",
	"kernel/panic", "kernel/panic_on_oops", "kernel/sem", "kernel/shm*", "kernel/msg*", "kernel/printk",
	"kernel/randomize_va_space", "kernel/perf_event_*"}

// ranges are the bounds of parameters that have had no wider ones in any kernel.
var ranges = []struct {
	pattern     string
	least, most int64
}{
	{"vm/swappiness", 0, 200}, // 100 before Linux 5.8
	{"vm/overcommit_memory", 0, 2},
	{"vm/panic_on_oom", 0, 2},
	{"vm/dirty_ratio", 0, 100},
	{"vm/dirty_background_ratio", 0, 100},
	{"kernel/dmesg_restrict", 0, 1},
	{"kernel/kptr_restrict", 0, 2},
	{"kernel/yama/ptrace_scope", 0, 3},
	{"kernel/unprivileged_bpf_disabled", 0, 2},
	{"kernel/kexec_load_disabled", 0, 1},
	{"kernel/modules_disabled", 0, 1},
	{"fs/protected_hardlinks", 0, 1},
	{"fs/protected_symlinks", 0, 1},
	{"fs/protected_fifos", 0, 2},
	{"fs/protected_regular", 0, 2},
	{"fs/suid_dumpable", 0, 2},
}

// rounded are the parameters that the kernel rounds up, by what it does to them.
var rounded = map[string]func(int64) int64{
	"fs/pipe-max-size":                   func(n int64) int64 { return powerOfTwo(max(n, 4096)) },
	"net/core/rps_sock_flow_entries":     powerOfTwo,
	"net/netfilter/nf_conntrack_buckets": func(n int64) int64 { return (n + 511) / 512 * 512 }, // those that fill pages
}

// powerOfTwo is the least power of two that is not below n.
func powerOfTwo(n int64) int64 { return 1 << bits.Len64(uint64(n-1)) }

// oneWay are the values that the kernel keeps until it starts anew.
var oneWay = map[string]string{"kernel/kexec_load_disabled": "1", "kernel/modules_disabled": "1",
	"kernel/unprivileged_bpf_disabled": "1", "kernel/yama/ptrace_scope": "3"}

// OneWay reports whether the kernel keeps a parameter at a value until it starts anew.
func OneWay(key, value string) bool { return value != "" && oneWay[key] == strings.TrimSpace(value) }
