// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheServicesPageHasCommands: the commands of docs/fleet-service.md are ones that
// this release has, with flags and arguments that it takes. testdata/script/fleet.txtar
// runs the same verbs.
func TestTheServicesPageHasCommands(t *testing.T) {
	text, err := os.ReadFile("../../docs/fleet-service.md")
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^caisson (.*)$`).FindAllSubmatch(text, -1)
	if len(commands) < 10 {
		t.Fatalf("%d commands", len(commands))
	}
	for _, m := range commands {
		args := strings.Fields(strings.ReplaceAll(string(m[1]), `"it burnt"`, "burnt"))
		c, rest, err := newApp(io.Discard, io.Discard).root().Find(args)
		if err == nil {
			err = c.ParseFlags(rest)
		}
		if err == nil {
			err = c.ValidateArgs(c.Flags().Args())
		}
		if err == nil {
			err = c.ValidateRequiredFlags()
		}
		if err != nil || !c.Runnable() || c.Name() == "fleet" {
			t.Errorf("caisson %s: %v", m[1], err)
		}
	}
}
