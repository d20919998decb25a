// SPDX-License-Identifier: Apache-2.0

package items

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/bootagent/record/journal"
	"github.com/caisson-os/caisson/packaging/systemd"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
)

// TestMain lets the test binary be the program that services start.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == process.LaunchVerb {
		fmt.Fprintln(os.Stderr, process.Launch(os.Args[2]))
		os.Exit(127)
	}
	os.Exit(m.Run())
}

// Every kind does its work under the confinement of the agent's unit, and puts it
// back; the unit's package says what stays open for that.
func TestUnderTheAgentsUnit(t *testing.T) {
	settings := itemtest.Confinement(t, systemd.Units, "caisson-agent.service")
	if len(settings) < 15 {
		t.Fatalf("settings %q", settings)
	}
	if !itemtest.InSystemd(t, settings...) {
		return
	}
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &unix.Timespec{}); err == nil {
		t.Fatal("the clock can be set: this is not the agent's confinement")
	}
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"tool": 0o755, "theirs": 0o600} {
		if err := os.WriteFile(dir+"/"+name, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chown(dir+"/theirs", 1000, 1000); err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir+"/journal", testScopes)
	if err != nil {
		t.Fatal(err)
	}
	table := func(want spec.Items) Result {
		return Reconcile(t.Context(), Table(want, Options{Journal: j, Scopes: testScopes, Etc: dir + "/etc", State: dir, Runner: process.Service{}}), j)
	}
	want := spec.Items{
		Mounts:  []spec.Mount{{ID: "m", Device: "tmpfs", Type: "tmpfs", Target: dir + "/made/here", Options: []string{"size=1m", "noexec"}}},
		Limits:  []spec.Limit{{ID: "core", Domain: "*", Type: "hard", Item: "core", Value: "0"}},
		Files:   []spec.File{{Path: "/etc/new/f", Content: "x", Mode: "0644"}},
		Sysctl:  []spec.Sysctl{{Key: "net/ipv4/ip_forward", Value: "1"}},
		Ethtool: []spec.Feature{{Interface: "lo", Feature: "gso", On: false}},
		Perm: &spec.Perm{Paths: []spec.PermPath{
			{Path: dir + "/tool", Mode: "4755"}, {Path: dir + "/theirs", Owner: "1001", Mode: "2770"}}},
		Exec: []spec.Exec{{Name: "s", Data: "#!/bin/sh\ncat /proc/self/oom_score_adj /proc/self/status >" + dir + "/said\n",
			Rerun: "never"}},
	}
	if err := os.Mkdir(dir+"/etc", 0o755); err != nil {
		t.Fatal(err)
	}
	ok(t, table(want))
	said, err := os.ReadFile(dir + "/said")
	if err != nil || !strings.HasPrefix(string(said), "0\n") || !strings.Contains(string(said), "\nSeccomp:\t0\n") {
		t.Errorf("a script is confined as the agent is: %v\n%.900s", err, said)
	}
	if info, err := os.Stat(dir + "/tool"); err != nil || info.Mode() != 0o755|os.ModeSetuid {
		t.Errorf("%v, %v", info, err)
	}
	ok(t, table(spec.Items{}))
	if _, err := os.Stat(dir + "/made"); !os.IsNotExist(err) {
		t.Errorf("the mount's directory is left: %v", err)
	}
}
