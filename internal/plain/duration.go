// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"strings"
	"time"
)

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
