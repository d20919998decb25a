// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/itemtest"
	"github.com/caisson-os/caisson/test/require"
)

func TestSupervise(t *testing.T) {
	n := newNode(t, t.TempDir(), true)
	n.Watchdog, n.Unproven = 60*time.Second, true
	n.Overlay.Items.Exec = []spec.Exec{{Name: "a"}, {Name: "b", Timeout: 60}, {Name: "c", Timeout: 5000, Blocking: "background"}}
	read := do(t, n)
	if got := read("etc/systemd/system.conf.d/60-caisson-supervise.conf"); got != "[Manager]\nCrashReboot=yes\nRuntimeWatchdogSec=60\n" {
		t.Errorf("manager: %q", got)
	}
	if got := read("etc/systemd/system/caisson-deadline.timer"); !strings.Contains(got, "\nOnActiveSec=2760\n") { // 900 + 1800 + 60
		t.Errorf("timer: %s", got)
	}
	if got := read("etc/systemd/system/target.d/60-caisson-deadline.conf"); !strings.Contains(got, "Wants=caisson-deadline.timer") {
		t.Errorf("what pulls it in: %s", got)
	}
	if got := read("etc/systemd/system/caisson-deadline-early.timer"); !strings.Contains(got, "\nOnActiveSec=900\n") {
		t.Errorf("the early timer: %s", got)
	}
	require.Tool(t, "systemd-analyze")
	for _, unit := range []string{"caisson-deadline.timer", "caisson-deadline.service", "caisson-deadline-early.timer", "caisson-deadline-early.service"} {
		at := n.path("etc/systemd/system/" + unit)
		if err := os.WriteFile(at, []byte(strings.ReplaceAll(read("etc/systemd/system/"+unit), paths.Agent, "/bin/true")), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("systemd-analyze", "verify", "--man=no", at).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
}

// A soft-reboot by hand loses state, persisted directories and the agent: systemd
// refuses it, and its status says why.
func TestASoftRebootIsRefused(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	n := newNode(t, t.TempDir(), true)
	dropIn := do(t, n)("etc/systemd/system/soft-reboot.target.d/60-caisson-refuse.conf")
	if err := os.MkdirAll("/run/units/soft-reboot.target.d", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"soft-reboot.target": "[Unit]\nDescription=Reboot System Userspace\nDefaultDependencies=no\n", "soft-reboot.target.d/60-caisson-refuse.conf": dropIn} {
		if err := os.WriteFile("/run/units/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := systemctl("daemon-reload"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := systemctl("start", "soft-reboot.target"); err == nil || !strings.Contains(out, "refused") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, _ := systemctl("status", "--no-pager", "soft-reboot.target"); !strings.Contains(out, "refused by caisson") {
		t.Errorf("its status says %s", out)
	}
}

// What does not come up ends in emergency.target as often as not.
func TestEveryTargetHasTheDeadline(t *testing.T) {
	const systemd = "/lib/systemd/systemd"
	require.Tool(t, systemd)
	n := newNode(t, t.TempDir(), true)
	n.Unproven = true
	do(t, n)
	for _, dir := range []string{filepath.Dir(n.Root), n.Root} {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, target := range []string{"emergency.target", "rescue.target", "multi-user.target"} {
		cmd := exec.Command(systemd, "--test", "--system", "--unit="+target, "--log-target=console")
		cmd.Env = []string{"SYSTEMD_UNIT_PATH=" + n.path("etc/systemd/system") + ":", "XDG_RUNTIME_DIR=/tmp"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}} // it refuses to be root
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "Action: caisson-deadline.timer -> start") {
			t.Errorf("%s does not start the timer: %v\n%.2000s", target, err, out)
		}
	}
}

// A boot is started over when it has had its own time and no script runs, not when all
// scripts could have taken theirs.
func TestTheDeadlineAsksForScripts(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	const asked, over = itemtest.Shared + "/asked", itemtest.Shared + "/over"
	units := (&Node{Unproven: true, Overlay: &spec.Overlay{Core: spec.Core{KernelArgs: []string{"caisson.deadline=1"}}, Items: spec.Items{Exec: []spec.Exec{{Name: "a"}}}}}).deadlineUnits()
	stub := itemtest.Shared + "/agent"
	agent := "#!/bin/sh\nread begun < " + paths.RunDeadline + "\necho $* $begun >> " + asked + "\n[ $1 = " + paths.NoteDeadline + " ] && touch " + over + "\n[ \"$begun\" = script ]\n"
	write := func(name, text string) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	until := func(what string, is func() bool) {
		t.Helper()
		for range 6000 {
			if is() {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		text, err := os.ReadFile(asked)
		t.Fatalf("%s: never; asked %q, %v", what, text, err)
	}
	write(stub, agent)
	for name, text := range units {
		text = strings.NewReplacer(paths.Agent, stub, "OnUnitInactiveSec=10", "OnUnitInactiveSec=1", "SuccessAction=reboot-force\nFailureAction=reboot-force\n", "").Replace(text)
		write("/run/units/"+name, text)
	}
	write(paths.RunDeadline, "script\n")
	if out, err := systemctl("daemon-reload"); err != nil {
		t.Fatal(out, err)
	}
	if out, err := systemctl("start", "caisson-deadline.timer", "caisson-deadline-early.timer"); err != nil {
		t.Fatal(out, err)
	}
	until("it is asked again while a script runs", func() bool {
		text, err := os.ReadFile(asked)
		return err == nil && strings.Count(string(text), paths.DeadlineOver+" 1 script\n") > 1
	})
	if _, err := os.Stat(over); err == nil {
		t.Error("the machine is started over while a script runs")
	}
	write(paths.RunDeadline, "none\n")
	until("the machine is started over", func() bool { _, err := os.Stat(over); return err == nil })
}

// A generation that is good, or whose boot is not counted, is not ended by a timer;
// nor is one whose site says so.
func TestNoDeadline(t *testing.T) {
	for _, c := range []struct {
		unproven bool
		args     []string
		want     time.Duration
	}{
		{true, nil, proveWithin},
		{false, nil, 0},
		{true, []string{"caisson.deadline=0"}, 0},
		{true, []string{"caisson.deadline=90"}, 90 * time.Second},
		{true, []string{"caisson.deadline=soon"}, proveWithin},
	} {
		n := &Node{Unproven: c.unproven, Overlay: &spec.Overlay{Core: spec.Core{KernelArgs: c.args}}}
		if got, scripts := n.deadline(); got != c.want || scripts != 0 {
			t.Errorf("%+v: %s and %s", c, got, scripts)
		}
	}
	n := newNode(t, t.TempDir(), true)
	if do(t, n); n.exists("etc/systemd/system/target.d/60-caisson-deadline.conf") {
		t.Error("a good generation has a deadline")
	}
}

func systemctl(args ...string) (string, error) {
	out, err := exec.Command("systemctl", args...).CombinedOutput()
	return string(out), err
}
