// SPDX-License-Identifier: Apache-2.0

package plain

import "fmt"

// Bytes writes a size: "12.3 kB", "86.5 MB", "960.2 GB".
func Bytes(n int64) string {
	switch {
	case n < 1e6:
		return fmt.Sprintf("%.1f kB", float64(n)/1e3)
	case n < 1e9:
		return fmt.Sprintf("%.1f MB", float64(n)/1e6)
	}
	return fmt.Sprintf("%.1f GB", float64(n)/1e9)
}
