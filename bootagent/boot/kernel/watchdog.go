// SPDX-License-Identifier: Apache-2.0

// A machine whose loader hangs is started over.
//
// Two things look: the hardware's watchdog, if there is one, starts the machine over
// when nobody feeds it, whatever the kernel does; and a timer of our own ends a loader
// that has made no progress for long, with or without such hardware. systemd takes the
// hardware over when the new root's init runs, see RuntimeWatchdogSec= in
// systemd-system.conf(5): it keeps counting in between.
//
// It follows the kernel's watchdog-api.rst.

package kernel

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/fault"
)

// WatchdogDevice is the hardware's watchdog, the first where there are several.
const WatchdogDevice = "/dev/watchdog"

// Watchdog is an open watchdog; nil is a machine without one.
type Watchdog struct {
	file    *os.File
	timeout time.Duration
}

// OpenWatchdog starts the watchdog. A driver that does not take the timeout keeps its own.
// The file is closed on exec, which does not stop the watchdog: only writing "V"
// before would.
func OpenWatchdog(name string, timeout time.Duration) (*Watchdog, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	fd := int(f.Fd())
	_ = unix.IoctlSetPointerInt(fd, unix.WDIOC_SETTIMEOUT, int(timeout.Seconds())) // what counts is read back
	seconds, err := unix.IoctlGetInt(fd, unix.WDIOC_GETTIMEOUT)
	if err != nil {
		_ = f.Close() // it is not a watchdog
		return nil, fmt.Errorf("%s: read the timeout: %w", name, err)
	}
	return &Watchdog{file: f, timeout: time.Duration(seconds) * time.Second}, nil
}

// Timeout returns what the driver made of the one that was asked for, 0 for no
// watchdog.
func (h *Watchdog) Timeout() time.Duration {
	if h == nil {
		return 0
	}
	return h.timeout
}

// Feed puts the machine's end off by the timeout.
func (h *Watchdog) Feed() error {
	if h == nil {
		return nil
	}
	_, err := h.file.Write([]byte{0})
	return fault.In(err, "feed the watchdog")
}

// WatchdogProgress ends what has made none for longer than Limit.
type WatchdogProgress struct {
	Limit time.Duration
	Every time.Duration // between two looks
	Feed  func() error  // called for as long as there is progress
	End   func(silent time.Duration)

	last atomic.Int64 // nanoseconds since start
	from time.Time
}

// Watch begins to look, in the background and for good. The first error of Feed is
// given to say; it ends nothing.
func (p *WatchdogProgress) Watch(say func(format string, args ...any)) {
	p.from = time.Now()
	go func() {
		said := false
		for range time.Tick(p.Every) {
			if silent := time.Since(p.from) - time.Duration(p.last.Load()); silent > p.Limit {
				p.End(silent)
				return
			}
			if err := p.Feed(); err != nil && !said {
				said = true
				say("%v", err)
			}
		}
	}()
}

// Made notes progress. It may be called before Watch, and by several at once.
func (p *WatchdogProgress) Made() {
	if !p.from.IsZero() {
		p.last.Store(int64(time.Since(p.from)))
	}
}
