// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// nobody is the user and group that owns nothing.
const nobody = 65534

// confine gives up what asking a registry does not take: capabilities, the right
// to gain any, files to write, and the agent's place at the end of the kernel's
// list of what it kills when memory is short.
func confine() error {
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0o600) // without /proc there is nothing to compare with
	for resource, limit := range map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_NOFILE: 64} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			return fmt.Errorf("limit the process that asks the registry: %w", err)
		}
	}
	if os.Geteuid() == 0 { // a change of user takes the capabilities of all threads
		for _, err := range []error{syscall.Setgroups([]int{}), syscall.Setresgid(nobody, nobody, nobody), syscall.Setresuid(nobody, nobody, nobody)} {
			if err != nil {
				return fmt.Errorf("give up privileges: %w", err)
			}
		}
	}
	if _, _, errno := syscall.AllThreadsSyscall6(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0); errno != 0 && !errors.Is(errno, unix.ENOTSUP) { // cgo, as in tests for races
		return fmt.Errorf("give up privileges: %w", errno)
	}
	return nil
}
