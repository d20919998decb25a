// SPDX-License-Identifier: Apache-2.0

// Package stall waits, for as long as a context allows, for what waits in the kernel without end:
// system calls that may hang, as those on a file whose server is gone do, and advisory locks. No
// context ends such a call, and only the end of the process would.
//
// It does not know what is called or locked.
package stall

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// running holds the calls that go on, by name: a call that hangs outlives its caller.
var running = struct {
	sync.Mutex
	over map[string]chan struct{} // closed when the call is over
}{over: map[string]chan struct{}{}}

// Within makes a call and returns its error, or why the context has ended where that comes
// first. The call goes on then, and the next one of its name is made after it: however
// often a caller asks, one hangs, and nothing is done in another order than asked for.
func Within(ctx context.Context, name string, call func() error) error {
	over, err := make(chan struct{}), error(nil)
	for {
		running.Lock()
		before, busy := running.over[name]
		if !busy {
			running.over[name] = over
		}
		running.Unlock()
		if !busy {
			break
		}
		select {
		case <-before:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	go func() {
		defer func() {
			running.Lock()
			defer running.Unlock()
			delete(running.over, name)
			close(over)
		}()
		err = call()
	}()
	select {
	case <-over:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Rest waits for a time, and returns why the context has ended where that comes first.
func Rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

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
		if Rest(ctx, poll) != nil {
			return ctx.Err()
		}
	}
}
