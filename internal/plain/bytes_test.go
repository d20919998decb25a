// SPDX-License-Identifier: Apache-2.0

package plain

import "testing"

// TestBytes: disks are said as their labels say them.
func TestBytes(t *testing.T) {
	for n, want := range map[int64]string{0: "0.0 kB", 12_345: "12.3 kB", 86_500_000: "86.5 MB", 2_411_724_800: "2.4 GB", 960_197_124_096: "960.2 GB"} {
		if got := Bytes(n); got != want {
			t.Errorf("%d is %q, want %q", n, got, want)
		}
	}
}
