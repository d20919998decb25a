// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// TestFileNamesSteerNoTerminal: users of the node choose names of files, and
// status and plan print them.
func TestFileNamesSteerNoTerminal(t *testing.T) {
	const forged = "/srv/x\x1b[2J\r\nhealth      ok\u202e"
	var out strings.Builder
	a := &app{out: &out, err: &out}
	st := &spec.Status{Node: "n", Drift: []spec.Drift{{Item: "perm", Key: forged, From: forged, To: forged, Action: "change"}, {Item: "perm", Key: forged, Reason: forged}}, Foreign: []string{forged}, SyncDetail: forged}
	if err := a.showStatus(st); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\x1b\r\u202e") {
		t.Errorf("it steers: %q", out.String())
	}
	if n := strings.Count(out.String(), "\nhealth"); n != 1 {
		t.Errorf("%d lines say what the health is:\n%s", n, out.String())
	}
}
