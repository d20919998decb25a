// SPDX-License-Identifier: Apache-2.0

package uptime

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/test/require"
)

// witness is a timer of the test's own that ends when the clock is set: others may set
// the clock of the machine meanwhile.
type witness struct{ timer int }

func newWitness(t *testing.T) witness {
	t.Helper()
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) }) // only read
	never := unix.ItimerSpec{Value: unix.Timespec{Sec: 1 << 40}}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil); err != nil && !errors.Is(err, unix.ECANCELED) {
		t.Fatal(err)
	}
	return witness{fd}
}

// saw reports whether somebody has set the clock.
func (w witness) saw() bool {
	_, err := unix.Read(w.timer, make([]byte, 8))
	return errors.Is(err, unix.ECANCELED)
}

// setClock sets the clock to the time that it has.
func setClock(t *testing.T) {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		t.Fatal(err)
	}
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &now); err != nil {
		if os.IsPermission(err) {
			t.Skipf("the clock of this machine cannot be set: %v", err)
		}
		t.Fatal(err)
	}
}

// TestClockIsSet: setting the clock, to the time that it has, is told; time that
// passes is not.
func TestClockIsSet(t *testing.T) {
	nobody := newWitness(t)
	c, err := WatchClock()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Set():
		if !nobody.saw() {
			t.Error("nobody has set the clock")
		}
	case <-time.After(100 * time.Millisecond):
	}
	t.Run("set", func(t *testing.T) {
		require.Root(t)
		for range 2 {
			setClock(t)
			select {
			case <-c.Set():
			case <-time.After(time.Minute):
				t.Fatal("the clock was set, and nothing told so")
			}
		}
	})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestClockIsSetAgain: a clock that is set while it is told that it was ends no watch.
func TestClockIsSetAgain(t *testing.T) {
	require.Root(t)
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	c := &Clock{timer: os.NewFile(uintptr(fd), "clock")}
	defer c.Close() // only read
	if err := c.arm(); err != nil {
		t.Fatal(err)
	}
	setClock(t)
	if err := c.arm(); err != nil {
		t.Fatalf("nobody watches it any more: %v", err)
	}
	setClock(t)
	if err := c.timer.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.timer.Read(make([]byte, 8)); !errors.Is(err, unix.ECANCELED) {
		t.Errorf("the clock was set, and nothing told so: %v", err)
	}
}
