// SPDX-License-Identifier: Apache-2.0

package uptime

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/spec"
)

// open returns the interval that holds a time.
func open(w spec.Window, now time.Time) (spec.Interval, bool) {
	for _, i := range w.Intervals {
		if !now.Before(i.From) && now.Before(i.To) {
			return i, true
		}
	}
	return spec.Interval{}, false
}

// Coming returns the interval that is open, or the next one; false where no more are
// known.
func Coming(w spec.Window, now time.Time) (spec.Interval, bool) {
	for _, i := range w.Intervals {
		if i.To.After(now) {
			return i, true
		}
	}
	return spec.Interval{}, false
}

// Next returns when a window opens after a time; false if that is not known.
func Next(w spec.Window, now time.Time) (time.Time, bool) {
	for _, i := range w.Intervals {
		if i.From.After(now) {
			return i.From, true
		}
	}
	return time.Time{}, false
}

// Soonest returns when the first of the named windows opens after a time; false if that
// is not known.
func Soonest(m *spec.Maintenance, names []string, now time.Time) (soonest time.Time, known bool) {
	for _, name := range names {
		if next, is := Next(m.Windows[name], now); is && (!known || next.Before(soonest)) {
			soonest, known = next, true
		}
	}
	return soonest, known
}

// May says whether something may start now that waits for any of the named windows,
// and if not, why. Without names it may at any time.
func May(m *spec.Maintenance, names []string, now time.Time) (ok bool, why string) {
	if len(names) == 0 {
		return true, ""
	}
	opens := ""
	next, known := Soonest(m, names, now)
	for _, name := range names {
		w := m.Windows[name]
		if i, is := open(w, now); is {
			if now.Before(i.To.Add(-time.Duration(w.StartGuard) * time.Second)) {
				return true, ""
			}
			why = fmt.Sprintf("window %s closes soon, at %s", name, Moment(i.To))
		}
		if at, is := Next(w, now); is && known && at.Equal(next) && opens == "" {
			opens = fmt.Sprintf("window %s opens at %s", name, Moment(next))
		}
	}
	switch {
	case why != "":
	case opens != "":
		why = opens
	case !now.Before(m.Horizon):
		why = fmt.Sprintf("the published calendar ended at %s: the site has to be published again", Moment(m.Horizon))
	default:
		why = fmt.Sprintf("no window opens before %s, where the published calendar ends", Moment(m.Horizon))
	}
	return false, why
}

// Opened returns when the first of the named windows opened that is open now; zero when
// none is.
func Opened(m *spec.Maintenance, names []string, now time.Time) time.Time {
	var first time.Time
	for _, name := range names {
		if i, is := open(m.Windows[name], now); is && (first.IsZero() || i.From.Before(first)) {
			first = i.From
		}
	}
	return first
}

// Stop reports whether what runs in the named windows has to stop: none of them is
// open, and all of them say so.
func Stop(m *spec.Maintenance, names []string, now time.Time) bool {
	for _, name := range names {
		w := m.Windows[name]
		if _, is := open(w, now); is || w.OnClose != "stop" {
			return false
		}
	}
	return len(names) > 0
}

// Synchronised reports whether the kernel's clock follows a time server, see
// adjtimex(2): a machine may boot with any date.
func Synchronised() bool {
	var t unix.Timex
	state, err := unix.Adjtimex(&t)
	return err == nil && state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0
}

// Moment writes a time for people.
func Moment(t time.Time) string { return t.UTC().Format("2006-01-02 15:04 UTC") }

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
		if _, err := c.timer.Read(count); !errors.Is(err, unix.ECANCELED) || c.arm() != nil {
			return // it was closed
		}
		select { // armed before: who looks now hears what comes later
		case c.set <- struct{}{}:
		default: // nobody has looked since the last time
		}
	}
}
