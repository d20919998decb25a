// SPDX-License-Identifier: Apache-2.0

package stall

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// poll is how often a lock that another process has is tried.
const poll = 20 * time.Millisecond

// Lock takes the lock of an open file, see flock(2), alone or, where shared, together with others that
// share it. It polls, because a call that waits in the kernel heeds neither a deadline nor a
// signal that ends the program. Closing the file gives it back. It returns the error of the context when that
// ends first, and what the kernel says of a file that cannot be locked.
func Lock(ctx context.Context, f *os.File, shared bool) error {
	how := unix.LOCK_EX
	if shared {
		how = unix.LOCK_SH
	}
	for {
		err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		}
	}
}
