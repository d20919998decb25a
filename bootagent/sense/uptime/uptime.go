// SPDX-License-Identifier: Apache-2.0

// Package uptime tells the time of a node, and whether it may act now. It measures from the start of
// the kernel, as the kernel's own log does: a clock that is set meanwhile says nothing. [Recorder]
// notes how long the steps of a boot and of a run take, and does not know what the steps are.
//
// [May] says whether a node may act now: it compares its clock with the intervals of a signed overlay,
// and says what is waited for. It knows neither rules nor time zones, which were resolved when the
// site was published.
//
// A deadline is a file for which systemd starts a machine over: it is there for
// as long as a new generation has not proved itself, see bootagent/boot/handover. In it is
// how long scripts have run in this boot, and which one runs: they have timeouts of their
// own, so the deadline counts none of that time, and none of scripts that have ended or were
// never begun.
//
//	BeginDeadline  the loader, or a soft-reboot
//	BeginScript    an item that waits for a script
//	DeadlineOver   systemd's timer asks
//	EndDeadline    the node, when the generation is applied and judged, or proved itself
//
// While a change is judged a second file bounds the agent in the same way: each look renews it.
package uptime

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/durable"
	"github.com/caisson-os/caisson/internal/fault"
	"github.com/caisson-os/caisson/internal/ownfiles"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

// Recorder collects steps in the order in which they end. The zero value is ready;
// it is for one goroutine.
type Recorder struct{ steps []spec.Step }

// most bounds the steps of one recorder: a boot that cannot reach its registry tries
// again and again. The first ones and the last one are kept.
const most = 200

// Begin begins a step; calling end ends it, with what went wrong, if anything.
func (r *Recorder) Begin(name string) (end func(error)) {
	began := Now()
	return func(err error) {
		s := spec.Step{Name: name, Start: milliseconds(began), Took: milliseconds(Now() - began), Result: spec.StepOK}
		if err != nil {
			s.Result = err.Error()
		}
		if len(r.steps) == most {
			r.steps = r.steps[:most-1]
		}
		r.steps = append(r.steps, s)
	}
}

// Bytes notes what the step that ended last brought, if anything.
func (r *Recorder) Bytes(b spec.Bytes) {
	if len(r.steps) > 0 && b != (spec.Bytes{}) {
		r.steps[len(r.steps)-1].Bytes = &b
	}
}

// Steps returns what has ended so far.
func (r *Recorder) Steps() []spec.Step { return r.steps }

func milliseconds(d time.Duration) float64 {
	return math.Round(float64(d)/float64(time.Millisecond)*1000) / 1000
}

// Now is how long this kernel runs, suspension included.
func Now() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0 // every kernel that has openat2 has it
	}
	return time.Duration(now.Nano())
}

// noted holds the content of the file, in nanoseconds. An empty file knows of no script.
type noted struct {
	Began   time.Duration `json:"began"`
	Within  time.Duration `json:"within,omitempty"`  // 0 where who asks knows it
	Scripts time.Duration `json:"scripts,omitempty"` // that have ended
	Since   time.Duration `json:"since,omitempty"`   // when the one that runs was started
	Limit   time.Duration `json:"limit,omitempty"`   // the timeout of that one, 0 where none runs
}

// maxSize is more than a file takes.
const maxSize = 1 << 10

// BeginDeadline has the deadline of a boot count, from now on.
func BeginDeadline(path string, up time.Duration) error {
	data, _ := json.Marshal(noted{Began: up}) // numbers marshal
	return durable.WriteFile(path, data, 0o600)
}

// RenewDeadline has a deadline end within the time from now on, beside what a script that runs may
// still take. It reports whether there was none before.
func RenewDeadline(path string, up, within time.Duration) (first bool, err error) {
	n, err := read(path)
	first = errors.Is(err, fs.ErrNotExist) // what is damaged is written again
	next := noted{Began: up, Within: within}
	if n.Limit > 0 {
		next.Since, next.Limit = up, max(0, n.Limit-(up-n.Since))
	}
	data, _ := json.Marshal(next) // numbers marshal
	return first, durable.WriteFile(path, data, 0o600)
}

// EndDeadline ends a deadline. That there is none is not an error.
func EndDeadline(path string) error {
	return fault.But(os.Remove(path), fs.ErrNotExist)
}

// BeginScript notes that a script begins, where a deadline counts, and by ended that it is over.
func BeginScript(path string, up func() time.Duration, limit time.Duration) (ended func() error, err error) {
	n, err := read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	n.end(up()) // the process that waited for one before is gone
	n.Since, n.Limit = up(), limit
	if err := n.write(path); err != nil {
		return nil, err
	}
	return func() error {
		n, err := read(path)
		if err != nil {
			return fault.But(err, fs.ErrNotExist)
		}
		n.end(up())
		return n.write(path)
	}, nil
}

// DeadlineOver reports whether the time is over that there was, within where the file says nothing
// else, beside what scripts took.
func DeadlineOver(path string, up, within time.Duration) (bool, error) {
	n, err := read(path)
	if err != nil {
		return false, err
	}
	n.end(up)
	return up-n.Began-n.Scripts >= cmp.Or(n.Within, within), nil
}

// end counts the script that runs, up to its timeout.
func (n *noted) end(up time.Duration) {
	n.Scripts += max(0, min(up-n.Since, n.Limit))
	n.Since, n.Limit = 0, 0
}

func read(path string) (n noted, err error) {
	data, err := ownfiles.ReadFile(path, maxSize)
	if err != nil || len(data) == 0 {
		return n, err
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return n, fmt.Errorf("read %s: %w", path, err)
	}
	return n, nil
}

// write writes the file where it still is: who removed it meanwhile keeps the machine from
// being started over. The two files change places, so that who asks just then reads one of them,
// and what the disk does not take changes nothing. One process at a time waits for a script.
func (n noted) write(path string) error {
	data, _ := json.Marshal(n) // numbers marshal
	next := path + ".next"
	if err := os.WriteFile(next, data, 0o600); err != nil {
		return err
	}
	err := unix.Renameat2(unix.AT_FDCWD, next, unix.AT_FDCWD, path, unix.RENAME_EXCHANGE)
	err = fault.But(err, fs.ErrNotExist)
	return errors.Join(err, os.Remove(next))
}

// open returns the interval that holds a time.
func open(w spec.Window, now time.Time) (spec.Interval, bool) {
	i := plain.First(w.Intervals, func(i spec.Interval) bool { return !now.Before(i.From) && now.Before(i.To) })
	return i, i != spec.Interval{}
}

// Coming returns the interval that is open, or the next one; false where no more are
// known.
func Coming(w spec.Window, now time.Time) (spec.Interval, bool) {
	i := plain.First(w.Intervals, func(i spec.Interval) bool { return i.To.After(now) })
	return i, i != spec.Interval{}
}

// Next returns when a window opens after a time; false if that is not known.
func Next(w spec.Window, now time.Time) (time.Time, bool) {
	i := plain.First(w.Intervals, func(i spec.Interval) bool { return i.From.After(now) })
	return i.From, i != spec.Interval{}
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
