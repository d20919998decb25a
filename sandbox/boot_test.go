// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"slices"
	"testing"
)

// TestLines: of a console that says why its node does not come up, people get the text.
func TestLines(t *testing.T) {
	got := lines("\x1b[!p\x1b[0;1;31mYou are in emergency mode\x1b[0m\nPress\x1b(B Enter\n")
	if want := []string{"You are in emergency mode", "Press Enter"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
