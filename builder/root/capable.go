// SPDX-License-Identifier: Apache-2.0

package root

import (
	"context"
	"fmt"
	"math"
	"os"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
)

// Unprivileged is returned when this process may not do what a build does. One of
// its fields says why.
type Unprivileged struct {
	Missing []string // capabilities that it lacks, as capabilities(7) names them
	IDs     int      // how many IDs, from 0 up, its user namespace has; too few
	Err     error    // what was refused although it has these
	user    bool     // it is not root, not even of a user namespace
}

func (u *Unprivileged) Error() string {
	switch {
	case len(u.Missing) > 0:
		return "building a layer needs " + strings.Join(u.Missing, ", ") + ", which this process does not have"
	case u.IDs > 0:
		return fmt.Sprintf("building a layer needs the user and group IDs 0 to %d, and this user namespace has %d", lastID, u.IDs)
	}
	return "building a layer: " + u.Err.Error()
}
func (u *Unprivileged) Unwrap() error { return u.Err }

// Ways to build, see docs/building.md.
const (
	userWay = "unshare --map-root-user --map-auto --mount caisson build …, with package uidmap and lines for the " +
		"user in /etc/subuid and /etc/subgid"
	containerWay = "podman run --cap-add SYS_ADMIN --security-opt apparmor=unconfined --volume caisson-cache:/var/cache/caisson …"
)

// Hint returns the way to get what is missing.
func (u *Unprivileged) Hint() string {
	switch {
	case u.user:
		return "run it with sudo, or without root: " + userWay
	case u.IDs > 0:
		return "run it so: " + userWay
	}
	return "in a container: " + containerWay
}

// needed are the capabilities that a build needs of its surroundings: those of
// programs in a root, and what setting the root up takes.
var needed = []struct {
	name string
	bit  uint
}{
	{"CAP_CHOWN", unix.CAP_CHOWN}, {"CAP_DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE}, {"CAP_FOWNER", unix.CAP_FOWNER},
	{"CAP_FSETID", unix.CAP_FSETID}, {"CAP_KILL", unix.CAP_KILL}, {"CAP_SETGID", unix.CAP_SETGID}, {"CAP_SETUID", unix.CAP_SETUID},
	{"CAP_SETFCAP", unix.CAP_SETFCAP}, {"CAP_SETPCAP", unix.CAP_SETPCAP}, {"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN},
}

// lastID is nobody, the highest that Debian's packages use.
const lastID = 65534

// Capable reports what this process lacks for a build, as an *[Unprivileged]. It
// may be root of the host, or of a user namespace with enough IDs.
func Capable() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var have [2]unix.CapUserData
	if err := unix.Capget(&header, &have[0]); err != nil {
		return fmt.Errorf("read the capabilities of this process: %w", err)
	}
	u := &Unprivileged{user: os.Geteuid() != 0}
	for _, c := range needed {
		if have[c.bit/32].Effective&(1<<(c.bit%32)) == 0 {
			u.Missing = append(u.Missing, c.name)
		}
	}
	if len(u.Missing) > 0 {
		return u
	}
	for _, file := range []string{"/proc/self/uid_map", "/proc/self/gid_map"} {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if u.IDs = mapped(string(text)); u.IDs <= lastID {
			return u
		}
	}
	return nil
}

// mapped returns how many IDs from 0 up a map has, see user_namespaces(7).
func mapped(text string) int {
	next := 0
	for found := true; found; {
		found = false
		for line := range strings.Lines(text) {
			var inside, outside, count int
			if _, err := fmt.Sscan(line, &inside, &outside, &count); err == nil && inside == next && count > 0 {
				next, found = next+count, true
			}
		}
	}
	return next
}

// userNamespace reports whether this is not the host's own.
func userNamespace() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") != "0 0 4294967295"
}

// Try does what running a program in a root takes, without one, so that a host
// that refuses it says so before anything is made, as an *[Unprivileged]. Work is
// as [Root.Work].
func Try(ctx context.Context, work string) error {
	r, err := Empty(work)
	if err != nil {
		return err
	}
	defer os.RemoveAll(r.Work) // the next build empties work
	nothing := Command{Args: []string{"a program"}, without: "program"}
	if err = r.Run(ctx, nothing); err == nil {
		err = Isolated(ctx, []string{r.Work}, nothing)
	}
	if err != nil && ctx.Err() == nil {
		return &Unprivileged{Err: err}
	}
	return err
}

// kept are the capabilities of programs in a root: what installing files takes.
// The rest, such as SYS_ADMIN, SYS_CHROOT, SYS_PTRACE, SYS_MODULE, SYS_RAWIO,
// DAC_READ_SEARCH, MKNOD and those of the network, would act on the host's kernel
// or reach past the root.
var kept = []uint{
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_FOWNER, unix.CAP_FSETID, unix.CAP_KILL,
	unix.CAP_SETGID, unix.CAP_SETUID, unix.CAP_SETFCAP,
}

// dropCapabilities leaves the thread those that are kept. None of the others can
// come back: they leave the bounding set, too.
func dropCapabilities(*plan) error {
	keep := [2]uint32{}
	for _, c := range kept {
		keep[c/32] |= 1 << (c % 32)
	}
	for c := range uint(64) {
		if keep[c/32]&(1<<(c%32)) != 0 {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if err == unix.EINVAL { // the kernel has no more
			break
		}
		if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop ambient capabilities: %w", err)
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	for i := range data {
		data[i] = unix.CapUserData{Effective: keep[i], Permitted: keep[i]}
	}
	return fault.In(unix.Capset(&header, &data[0]), "drop capabilities")
}

// noNewPrivileges keeps set-uid programs and file capabilities from giving any.
func noNewPrivileges(*plan) error {
	return fault.In(unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "set no_new_privs")
}

// limit keeps a crash from the host's core_pattern, which may be a program.
func limit(*plan) error {
	return fault.In(unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}), "set limit of core dumps")
}

// closeDescriptors closes, at exec, what the builder was started with: a key may
// have come by descriptor.
func closeDescriptors(*plan) error {
	return fault.In(unix.CloseRange(planFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC), "close inherited descriptors")
}

// denied are system calls that installing a package does not take and that reach
// parts of the kernel where errors are found often, or that no namespace divides.
var denied = []uint32{
	unix.SYS_SETNS, unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN,
	unix.SYS_USERFAULTFD, unix.SYS_IO_URING_SETUP, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
}

// families are the addresses that sockets may have. Others are code of the kernel that
// building does not take, and AF_VSOCK reaches past every namespace.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// Offsets in the kernel's struct seccomp_data.
const (
	offsetCall = 0
	offsetArch = 4
	offsetArg0 = 16 // its low half: both architectures are little endian
)

var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// x32 marks a call of that interface, which has numbers of its own.
const x32 = 0x40000000

// filterCalls sets a filter, see seccomp(2): no user namespaces, in which a program
// would have every capability again, sockets of some families only, and none of the denied
// calls. Calls of another architecture, which the list does not know, are not there.
func filterCalls(*plan) error {
	arch, ok := auditArch[runtime.GOARCH]
	if !ok {
		return fmt.Errorf("no filter of system calls for %s", runtime.GOARCH)
	}
	var (
		load = func(at uint32) unix.SockFilter {
			return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
		}
		result = func(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: k} }
		jump   = func(test uint16, k uint32, then, otherwise uint8) unix.SockFilter {
			return unix.SockFilter{Code: unix.BPF_JMP | test | unix.BPF_K, K: k, Jt: then, Jf: otherwise}
		}
		absent  = result(unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS))
		refuse  = result(unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM))
		foreign = result(unix.SECCOMP_RET_ERRNO | uint32(unix.EAFNOSUPPORT))
		allow   = result(unix.SECCOMP_RET_ALLOW)
	)
	f := []unix.SockFilter{
		load(offsetArch), jump(unix.BPF_JEQ, arch, 1, 0), absent,
		load(offsetCall), jump(unix.BPF_JGE, x32, 0, 1), absent,
		jump(unix.BPF_JEQ, unix.SYS_CLONE3, 0, 1), absent, // its flags lie where no filter can look; libc takes clone then
	}
	for _, call := range denied {
		f = append(f, jump(unix.BPF_JEQ, call, 0, 1), refuse)
	}
	n := uint8(len(families))
	f = append(f,
		jump(unix.BPF_JEQ, unix.SYS_SOCKET, 1, 0), jump(unix.BPF_JEQ, unix.SYS_SOCKETPAIR, 0, n+3),
		load(offsetArg0))
	for i, family := range families {
		f = append(f, jump(unix.BPF_JEQ, family, n-uint8(i), 0))
	}
	f = append(f, foreign, allow,
		jump(unix.BPF_JEQ, unix.SYS_CLONE, 1, 0), jump(unix.BPF_JEQ, unix.SYS_UNSHARE, 0, 3),
		load(offsetArg0), jump(unix.BPF_JSET, unix.CLONE_NEWUSER, 0, 1), refuse,
		allow)
	program := unix.SockFprog{Len: uint16(len(f)), Filter: &f[0]}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return fmt.Errorf("filter system calls: %w", errno)
	}
	return nil
}
