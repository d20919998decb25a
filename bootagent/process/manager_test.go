// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/test/itemtest"
)

func TestManager(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	const unit = "[Unit]\nDefaultDependencies=no\n[Service]\nType=oneshot\nExecStart=/bin/sh -c "
	for name, text := range map[string]string{
		"load@.service": unit + "'echo %i >>/run/loaded'\n", "fails.service": unit + "'exit 3'\n",
		"stays.service": unit + "true\nRemainAfterExit=yes\n",
	} {
		if err := os.WriteFile("/run/units/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := Manager{}
	for range 2 { // a job that is done can be asked for again
		if err := m.Do(t.Context(), "start", "load@br_netfilter.service"); err != nil {
			t.Fatal(err)
		}
	}
	if data, err := os.ReadFile("/run/loaded"); err != nil || string(data) != "br_netfilter\nbr_netfilter\n" {
		t.Errorf("it ran as %q, %v", data, err)
	}
	if err := m.Do(t.Context(), "start", "stays.service"); err != nil {
		t.Fatal(err)
	}
	for unit, want := range map[string]string{"fails.service": "start fails.service: failed", "absent.service": "not found"} {
		if err := m.Do(t.Context(), "start", unit); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", unit, err)
		}
	}
	if err := errors.Join(os.Mkdir("/run/m", 0o755), unix.Mount("tmpfs", "/run/m", "tmpfs", 0, "")); err != nil {
		t.Fatal(err)
	}
	for unit, comes := range map[string][2]bool{"run-m.mount": {true, true}, "fails.service": {true, true}, "stays.service": {true, true},
		"test.service": {true, false}, "absent.service": {}} {
		began, there, err := m.Times(t.Context(), unit)
		if err != nil || began != 0 != comes[0] || there != 0 != comes[1] || comes[1] && there < began {
			t.Errorf("%s began %v, was there %v: %v", unit, began, there, err)
		}
	}
	if err := m.Do(t.Context(), "reload-everything", "load@x.service"); err == nil {
		t.Error("a job that there is not was done")
	}
}

// What went through the devices is stopped before a soft-reboot that replugs, so that the next root
// starts it again, and kept before another.
func TestSoftRebootThatReplugs(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	const unit = "[Unit]\nDefaultDependencies=no\n"
	for name, text := range map[string]string{
		devices: unit + "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=true\nExecStop=touch /run/stopped\n", paths.SoftReboot: unit,
	} {
		if err := os.WriteFile("/run/units/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := Manager{}
	if err := m.Do(t.Context(), "start", devices); err != nil {
		t.Fatal(err)
	}
	for _, replug := range []bool{false, true} {
		if err := m.SoftReboot(t.Context(), replug); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat("/run/stopped"); (err == nil) != replug {
			t.Errorf("replug %v: %v", replug, err)
		}
	}
}

// While the agent's own service starts, what is ordered after it can only be queued:
// to wait for it would be to wait for oneself.
// TestTrouble: what keeps a boot from its end is named, a service that ends again and again too,
// and not what asks for it.
func TestTrouble(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	const unit = "[Unit]\nDefaultDependencies=no\n[Service]\n"
	for name, text := range map[string]string{
		"again.service":                  unit + "ExecStart=/bin/false\nRestart=always\nRestartSec=600\n",
		"fails.service":                  unit + "Type=oneshot\nExecStart=/bin/false\n",
		"hangs.service":                  unit + "Type=oneshot\nExecStart=/bin/sleep 300\n",
		"caisson-deadline-early.service": unit + "Type=oneshot\nExecStart=/bin/false\n",
		"caisson-deadline.service":       unit + "Type=oneshot\nExecStart=/bin/sleep 300\n",
	} {
		if err := os.WriteFile("/run/units/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("systemctl", "start", "--no-block", name).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	var failed, starting []string
	for range 600 { // seconds, where only a hang is to be found
		var err error
		if failed, starting, err = (Manager{}).Trouble(t.Context()); err != nil {
			t.Fatal(err)
		}
		slices.Sort(failed)
		starting = slices.DeleteFunc(starting, func(unit string) bool { return unit == "test.service" }) // which runs this
		if slices.Equal(failed, []string{"again.service", "fails.service"}) && slices.Equal(starting, []string{"hangs.service"}) {
			return
		}
		time.Sleep(time.Second)
	}
	t.Errorf("failed %q, starting %q", failed, starting)
}

func TestManagerWhileTheAgentStarts(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	const unit = "[Unit]\nDefaultDependencies=no\n"
	for name, text := range map[string]string{
		paths.AgentService: unit + "[Service]\nType=notify\nTimeoutStartSec=infinity\nExecStart=/bin/sleep 300\n",
		"after.service":    unit + "After=" + paths.AgentService + "\n[Service]\nExecStart=/bin/sleep 300\n",
		"behind.service":   unit + "After=after.service\nWants=after.service\n[Service]\nExecStart=/bin/sleep 300\n",
		"free.service":     unit + "[Service]\nType=oneshot\nExecStart=/bin/sleep 3\nExecStart=/bin/touch /run/freed\n",
	} {
		if err := os.WriteFile("/run/units/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	systemctl := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("systemctl", args...).CombinedOutput(); err != nil {
			t.Fatalf("systemctl %v: %v: %s", args, err, out)
		}
	}
	systemctl("start", "--no-block", paths.AgentService)
	m := Manager{}
	state := func(unit string) string {
		t.Helper()
		state, since, err := m.State(t.Context(), unit)
		if err != nil {
			t.Fatal(err)
		}
		if state == "active" && time.Since(since) > time.Minute {
			t.Errorf("%s is active since %v", unit, since)
		}
		return state
	}
	if got := state("behind.service"); got != "inactive" {
		t.Errorf("before: %s", got)
	}
	begun := time.Now()
	for _, unit := range []string{"behind.service", "free.service"} {
		if err := m.Do(t.Context(), "start", unit); err != nil {
			t.Error(err)
		}
	}
	if took := time.Since(begun); took > 4*time.Minute { // the agent's start takes five
		t.Errorf("it took %v", took)
	}
	if _, err := os.Stat("/run/freed"); err != nil {
		t.Errorf("what waits for nobody was not waited for: %v", err)
	}
	for _, unit := range []string{"behind.service", "after.service"} {
		if got := state(unit); got != "active" {
			t.Errorf("queued %s: %s", unit, got)
		}
	}
	systemctl("kill", paths.AgentService) // its start ends, and theirs begins
	if err := m.Do(t.Context(), "start", "behind.service"); err != nil {
		t.Error(err)
	}
	systemctl("stop", "behind.service", "after.service")
	if got := state("behind.service"); got != "inactive" {
		t.Errorf("after: %s", got)
	}
}
