// SPDX-License-Identifier: Apache-2.0

package window

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/require"
)

// TestClockIsSet: setting the clock, to the time that it has, is told; time that
// passes is not.
func TestClockIsSet(t *testing.T) {
	c, err := WatchClock()
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-c.Set():
		t.Error("nobody has set the clock")
	case <-time.After(100 * time.Millisecond):
	}
	t.Run("set", func(t *testing.T) {
		require.Root(t)
		for range 2 {
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
