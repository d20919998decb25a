// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/sandbox"
)

// TestTryShowsWhatChecksSay: what a command printed is shown, whether it passed or not.
func TestTryShowsWhatChecksSay(t *testing.T) {
	var out, talk strings.Builder
	a := &app{out: &out, err: &talk}
	err := a.tried(&sandbox.Trial{Node: "n1", Reason: "check false", Checks: []sandbox.Check{
		{Command: "uptime", Passed: true, Output: "up 1 min\n"}, {Command: "false", Exit: 1, Output: "no\n"},
	}}, tryFlags{})
	if err == nil || out.String() != "FAILED\tn1\tcheck false\npassed\tcheck\tuptime\nFAILED\tcheck\tfalse\n" {
		t.Errorf("%v, %q", err, out.String())
	}
	if got, want := talk.String(), "  up 1 min\ncaisson: false ended with 1\n  no\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
