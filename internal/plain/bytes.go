// SPDX-License-Identifier: Apache-2.0

package plain

import "fmt"

// Bytes writes a size: "12.3 kB", "86.5 MB".
func Bytes(n int64) string {
	if n < 1e6 {
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}
