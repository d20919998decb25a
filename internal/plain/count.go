// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"fmt"
	"strings"
	"time"
)

// Count writes how many there are of a thing whose plural ends in s: "1 node", "2 nodes".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Some writes names, the first of very many and how many more there are.
func Some(names []string, most int) string {
	if len(names) <= most {
		return strings.Join(names, " ")
	}
	return fmt.Sprintf("%s … and %d more", strings.Join(names[:most], " "), len(names)-most)
}

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

// Duration writes a time without the units at its end that are zero: 2h, not 2h0m0s.
func Duration(d time.Duration) string {
	text := d.String()
	for _, zero := range []struct{ end, keep string }{{"m0s", "m"}, {"h0m", "h"}} {
		if before, ok := strings.CutSuffix(text, zero.end); ok {
			text = before + zero.keep
		}
	}
	return text
}

// Time is when something was, for people and programs.
func Time(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format(time.RFC3339)
}
