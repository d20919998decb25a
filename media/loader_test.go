// SPDX-License-Identifier: Apache-2.0

package media

import (
	"slices"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// TestCredentials: what looks like one is named, and nothing else.
func TestCredentials(t *testing.T) {
	b := spec.Bootstrap{KernelArgs: []string{"console=ttyS0", "quiet", "agent.token=x", "secret=", "metrics=https://user:word@host/"}, Proxy: "http://proxy:3128", Hints: "https://user@fleet.example/"}
	want := []string{"kernel argument agent.token", "kernel argument metrics", "kernel argument DB_PASSWORD", "a password in the URL of reports"}
	if got := Credentials(b, []string{"DB_PASSWORD=x", "panic=30"}); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
