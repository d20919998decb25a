// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"math/bits"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec"
)

// Settable checks that a kernel can take the value of a parameter, as far as that is known
// whatever the kernel. It is asked where a value is written. Nodes do not ask it: they take
// what a publisher let through, and say what the kernel answered.
func Settable(s spec.Sysctl) error {
	name := SysctlName(s.Key)
	if key, value, ok := strings.Cut(name, "="); ok {
		return &Error{Field: "key", Rule: "sysctl-key", Hint: "write " + strings.TrimSpace(key) + ": " +
			orNothing(strings.TrimSpace(value)), Message: strconv.Quote(name) + " holds its value, too"}
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

func orNothing(value string) string {
	if value == "" {
		return `""`
	}
	return value
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
