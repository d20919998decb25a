// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// Race has Nobody do a step again and again, in a thread of its own that is in his hands
// alone, until the function that it returns ends that. It returns when the first step was
// done: what the test does from then on is done between two steps of his.
func Race(t testing.TB, step func(n int)) (end func()) {
	t.Helper()
	require.Root(t)
	stop, stopped, begun := make(chan struct{}), make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this function
		stopped <- func() error {
			for _, call := range [][]uintptr{{syscall.SYS_SETGROUPS, 0, 0, 0}, {syscall.SYS_SETRESGID, Nobody, Nobody, Nobody}, {syscall.SYS_SETRESUID, Nobody, Nobody, Nobody}} {
				if _, _, errno := syscall.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 { // of this thread alone
					close(begun)
					return errno
				}
			}
			for n := 0; ; n++ {
				select {
				case <-stop:
					return nil
				default:
					step(n)
				}
				if n == 0 {
					close(begun)
				}
			}
		}()
	}()
	<-begun
	return func() {
		t.Helper()
		close(stop)
		if err := <-stopped; err != nil {
			t.Fatalf("become nobody: %v", err)
		}
	}
}
