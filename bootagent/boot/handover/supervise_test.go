// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/internal/require"
	"github.com/caisson-os/caisson/spec"
)

func TestSupervise(t *testing.T) {
	n := newNode(t, t.TempDir(), true)
	n.Watchdog, n.Unproven = 60*time.Second, true
	n.Overlay.Items.Exec = []spec.Exec{{Name: "a"}, {Name: "b", Timeout: 60}, {Name: "c", Timeout: 5000, Blocking: "background"}}
	read := do(t, n)
	if got := read("etc/systemd/system.conf.d/60-caisson-supervise.conf"); got != "[Manager]\nCrashReboot=yes\nRuntimeWatchdogSec=60\n" {
		t.Errorf("manager: %q", got)
	}
	if got := read("etc/systemd/system/caisson-deadline.timer"); !strings.Contains(got, "\nOnStartupSec=2760\n") { // 900 + 1800 + 60
		t.Errorf("timer: %s", got)
	}
	if got := read("etc/systemd/system/target.d/60-caisson-deadline.conf"); !strings.Contains(got, "Wants=caisson-deadline.timer") {
		t.Errorf("what pulls it in: %s", got)
	}
	require.Tool(t, "systemd-analyze")
	for _, unit := range []string{"caisson-deadline.timer", "caisson-deadline.service"} {
		if out, err := exec.Command("systemd-analyze", "verify", "--man=no", n.path("etc/systemd/system/"+unit)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", unit, err, out)
		}
	}
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
		if got := n.deadline(); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	n := newNode(t, t.TempDir(), true)
	if do(t, n); n.exists("etc/systemd/system/caisson-deadline.timer") {
		t.Error("a good generation has a deadline")
	}
}
