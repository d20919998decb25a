// SPDX-License-Identifier: Apache-2.0

package capped

import (
	"strings"
	"testing"
)

// TestRead announces too little, too much and nothing: what is read depends on the
// limit alone.
func TestRead(t *testing.T) {
	for _, announced := range []int64{-1, 0, 5, 1 << 60} {
		for text, want := range map[string]string{"": "", "12345": "12345", "123456789": "123456"} {
			if got, err := Read(strings.NewReader(text), announced, 5); err != nil || string(got) != want {
				t.Errorf("Read(%q, announced %d, limit 5) = %q, %v; want %q", text, announced, got, err, want)
			}
		}
	}
}
