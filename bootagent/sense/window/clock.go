// SPDX-License-Identifier: Apache-2.0

package window

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Clock tells when the kernel's clock was set: what waits for a window by a timer of
// elapsed time would look at the new time only when that ends.
type Clock struct {
	timer *os.File
	set   chan struct{}
}

// WatchClock begins to watch. Close ends it.
func WatchClock() (*Clock, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("watch the clock: %w", err)
	}
	c := &Clock{os.NewFile(uintptr(fd), "clock"), make(chan struct{}, 1)}
	if err := c.arm(); err != nil {
		return nil, errors.Join(fmt.Errorf("watch the clock: %w", err), c.timer.Close())
	}
	go c.watch()
	return c, nil
}

// Set receives once the clock was set, however often.
func (c *Clock) Set() <-chan struct{} { return c.set }

// Close ends the watch.
func (c *Clock) Close() error { return c.timer.Close() }

// arm has reads wait for a time that never comes, or end with ECANCELED when the clock
// is set, see timerfd_create(2). Where the clock was set since the last read, arming
// ends with that, too.
func (c *Clock) arm() error {
	conn, err := c.timer.SyscallConn()
	if err != nil {
		return err
	}
	var armed error
	err = conn.Control(func(fd uintptr) {
		never := unix.ItimerSpec{Value: unix.Timespec{Sec: 1 << 40}}
		for armed = unix.ECANCELED; errors.Is(armed, unix.ECANCELED); {
			armed = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil)
		}
	})
	return errors.Join(err, armed)
}

func (c *Clock) watch() {
	count := make([]byte, 8)
	for {
		if _, err := c.timer.Read(count); !errors.Is(err, unix.ECANCELED) {
			return // it was closed
		}
		if c.arm() != nil {
			return // it was closed
		}
		select { // armed before: who looks now is told of what comes later
		case c.set <- struct{}{}:
		default: // nobody has looked since the last time
		}
	}
}
