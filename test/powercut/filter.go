// SPDX-License-Identifier: Apache-2.0

package powercut

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// environment has the words that a recorded process is given.
const environment = "CAISSON_TEST_POWERCUT"

const separator = "\x1f"

// told is the end of the pipe by which a recorded process is let go.
const told = 3

// IsRecorded reports whether this is a process that [Record] started.
func IsRecorded() bool { return os.Getenv(environment) != "" }

// Recorded returns, in a process that [Record] started, the words that it was given.
// From here on what the process does to files is recorded.
func Recorded(t testing.TB) (words []string, is bool) {
	t.Helper()
	if !IsRecorded() {
		return nil, false
	}
	words = strings.Split(os.Getenv(environment), separator)
	unix.Umask(0o022)
	listener, err := watch()
	if err != nil {
		t.Fatalf("have the calls of this process recorded: %v", err)
	}
	if _, err := unix.Read(told, make([]byte, 1)); err != nil { // who records has the listener
		t.Fatal(err)
	}
	if err := unix.Close(listener); err != nil {
		t.Fatal(err)
	}
	return words, true
}

// watch has every thread of this process, and whatever it starts, ask before the calls
// that change files.
func watch() (listener int, err error) {
	jump := func(nr uintptr, to uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: uint32(nr), Jt: to}
	}
	end := func(action uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: action}
	}
	asked := slices.Collect(known())
	program := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}} // the call's number
	for n, nr := range asked {
		program = append(program, jump(nr, uint8(len(asked)+len(refused)-n))) // over the rest and one more
	}
	for n, nr := range refused {
		program = append(program, jump(nr, uint8(len(refused)-n+1)))
	}
	program = append(program, end(unix.SECCOMP_RET_ALLOW), end(unix.SECCOMP_RET_USER_NOTIF), end(unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	whole := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_TSYNC | unix.SECCOMP_FILTER_FLAG_TSYNC_ESRCH | unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	fd, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&whole)))
	if errno != 0 {
		return 0, fmt.Errorf("seccomp: %w", errno)
	}
	return int(fd), nil
}

// refused are calls between two files, for which programs then write.
var refused = []uintptr{unix.SYS_COPY_FILE_RANGE, unix.SYS_SENDFILE, unix.SYS_SPLICE}
