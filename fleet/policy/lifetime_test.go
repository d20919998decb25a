// SPDX-License-Identifier: Apache-2.0

package policy

import "testing"

func TestParseLifetime(t *testing.T) {
	for text, hours := range map[string]float64{"30d": 720, "12h": 12, "90m": 1.5, "": 0, "d": 0, "-1d": 0, "0d": 0, "9999d": 0, "213504d": 0, "30": 0, "1s": 0} {
		got, err := parseLifetime(text)
		if (err != nil) != (hours == 0) || err == nil && got.Hours() != hours {
			t.Errorf("parseLifetime(%q) = %v, %v; want %v h", text, got, err, hours)
		}
	}
}
