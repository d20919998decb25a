// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/packaging/systemd"
	"github.com/caisson-os/caisson/test/itemtest"
)

// A machine without a watchdog has the kernel's while a generation has to prove itself, and until
// it starts over where the unit that would end it was killed.
func TestSoftdog(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	const name, starts, ends = "caisson-softdog.service", "modprobe softdog\nbusctl 60000000\n", "busctl 0\nmodprobe -rq softdog\n"
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	text, err := systemd.Units.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	unit := strings.NewReplacer("/sbin/modprobe", at("modprobe"), "/usr/bin/busctl", at("busctl"), "/run/caisson", dir, "/dev/watchdog", at("watchdog"), "sleep 5", "sleep 0.05",
		"ConditionVirtualization=!container\n", "").Replace(string(text))
	program := func(last string) []byte {
		return []byte("#!/bin/sh\n[ $# -lt 3 ] || shift 6\necho ${0##*/} \"$@\" >>" + at("calls") + "\n" + last)
	}
	if err := cmp.Or(os.WriteFile("/run/units/"+name, []byte(unit), 0o644), os.WriteFile(at("modprobe"), program(""), 0o755), os.WriteFile(at("busctl"), program("exit 1\n"), 0o755)); err != nil {
		t.Fatal(err)
	}
	m, ctx := process.Manager{}, t.Context()
	if err := m.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	touch := func(name string) {
		t.Helper()
		if err := os.WriteFile(at(name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(names ...string) {
		for _, name := range names {
			_ = os.Remove(at(name)) // it may not be there
		}
	}
	for _, c := range []struct {
		what string
		made []string
		then func()
		want string
	}{
		{"nothing has to prove itself", nil, func() {}, ""},
		{"it has a watchdog", []string{"deadline", "watchdog"}, func() {}, ""},
		{"it proves itself", []string{"deadline"}, func() { touch("judged"); remove("deadline"); remove("judged") }, starts + ends},
		{"it is stopped", []string{"judged"}, func() {
			if err := m.Do(ctx, "stop", name); err != nil {
				t.Error(err)
			}
		}, starts + ends},
		{"it is killed", []string{"judged"}, func() {
			if out, err := exec.Command("systemctl", "kill", "-s", "KILL", name).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		}, starts},
	} {
		remove("deadline", "judged", "watchdog", "calls")
		for _, name := range c.made {
			touch(name)
		}
		if err := m.Do(ctx, "start", name); err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		c.then()
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			state, err := exec.Command("systemctl", "show", "-P", "ActiveState", name).Output()
			if s := strings.TrimSpace(string(state)); err != nil || s == "inactive" || s == "failed" {
				break
			} else if time.Now().After(end) {
				t.Fatalf("%s: it is %s", c.what, s)
			}
		}
		if calls, _ := os.ReadFile(at("calls")); string(calls) != c.want { // none where nothing was called
			t.Errorf("%s:\n%s\nwant\n%s", c.what, calls, c.want)
		}
		_ = exec.Command("systemctl", "reset-failed", name).Run() // one that has not failed is an error
	}
}
