// SPDX-License-Identifier: Apache-2.0

package root

import (
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

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
	if err := unix.Capset(&header, &data[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// noNewPrivileges keeps set-uid programs and file capabilities from giving any.
func noNewPrivileges(*plan) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("set no_new_privs: %w", err)
	}
	return nil
}

// limit keeps a crash from the host's core_pattern, which may be a program.
func limit(*plan) error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("set limit of core dumps: %w", err)
	}
	return nil
}

// closeDescriptors closes, at exec, what the builder was started with: a key may
// have come by descriptor.
func closeDescriptors(*plan) error {
	if err := unix.CloseRange(planFD, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return fmt.Errorf("close inherited descriptors: %w", err)
	}
	return nil
}
