// SPDX-License-Identifier: Apache-2.0

package operate

import (
	"testing"

	"github.com/caisson-os/caisson/bootagent/record/state"
)

// A machine that remembers nothing may go back to the root that it came up with, and to none that
// the registry had then and that did not come up.
func TestForgotten(t *testing.T) {
	for _, c := range []struct {
		name string
		live state.Live
		want bool
	}{
		{"nothing is known", state.Live{}, true},
		{"another one was there", state.Live{Had: "b"}, false},
		{"it was there, and did not come up", state.Live{Had: "a", Began: "b"}, true},
		{"it was there, and what came up is not known", state.Live{Had: "a"}, true},
		{"it came up, and was left since", state.Live{Had: "a", Began: "a"}, false},
	} {
		if got := forgotten(&c.live, "a"); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
