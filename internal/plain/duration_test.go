// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{2 * time.Hour: "2h", 90 * time.Minute: "1h30m", 10 * time.Minute: "10m", 0: "0s", 10 * time.Second: "10s",
		time.Hour + 20*time.Second: "1h0m20s", 20*time.Hour + 10*time.Minute: "20h10m", 1500 * time.Millisecond: "1.5s"} {
		if got := Duration(d); got != want {
			t.Errorf("%s is written as %q, want %q", d, got, want)
		}
	}
}
