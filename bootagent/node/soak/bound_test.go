// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/bootagent/process"
	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/packaging/systemd"
	"github.com/caisson-os/caisson/test/itemtest"
)

// What asks whether the agent looks is asked again where it cannot run, and not where it has
// said that nobody looks; either way the machine is started over, by PID 1.
func TestNobodyLooks(t *testing.T) {
	if !itemtest.InSystemd(t) {
		return
	}
	const asked, over = "caisson-judged.service", "caisson-judged-over.service"
	dir := t.TempDir()
	program := filepath.Join(dir, "agent")
	for _, name := range []string{asked, over} {
		text, err := systemd.Units.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		unit := strings.NewReplacer(paths.Agent, program, "RestartSec=10s", "RestartSec=10ms", "TimeoutStartSec=40s", "TimeoutStartSec=1s").Replace(string(text))
		if name == over {
			over := strings.NewReplacer("SuccessAction=reboot-force", "SuccessAction=none", "FailureAction=reboot-immediate", "FailureAction=none")
			if unit = over.Replace(unit); strings.Count(unit, "Action=none") != 2 {
				t.Errorf("whatever comes of the note, it is to start over:\n%s", unit)
			}
		}
		if err := os.WriteFile("/run/units/"+name, []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m, ctx := process.Manager{}, t.Context()
	if err := m.Reload(ctx); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		what, does string
		asks       int
		starts     bool
	}{
		{"it looks", "exit 0", 1, false},
		{"nobody looks", "exit 5", 1, true},
		{"it cannot run", "kill -9 $$", 5, true},
		{"it has an error", "exit 1", 5, true},
		{"it stands still", "exec sleep 60", 5, true},
	} {
		calls := filepath.Join(dir, "calls")
		if err := os.WriteFile(program, []byte("#!/bin/sh\necho $1 >>"+calls+"\n[ $1 = "+paths.NoteDeadline+" ] || "+tt.does+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		first := m.Do(ctx, "start", asked)
		if (first != nil) == (tt.does == "exit 0") {
			t.Errorf("%s: %v", tt.what, first)
		}
		asks, notes := 0, 0
		for end, cancel := context.WithTimeout(ctx, time.Minute); ; time.Sleep(10 * time.Millisecond) {
			text, err := os.ReadFile(calls)
			if err != nil {
				t.Fatal(err)
			}
			asks, notes = strings.Count(string(text), paths.JudgedOver), strings.Count(string(text), paths.NoteDeadline)
			if !tt.starts || notes > 0 || end.Err() != nil {
				cancel()
				break
			}
		}
		if asks != tt.asks || (notes > 0) != tt.starts {
			t.Errorf("%s: asked %d times, started over %d times", tt.what, asks, notes)
		}
		if err := os.Remove(calls); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("systemctl", "reset-failed", asked).CombinedOutput(); err != nil && tt.starts {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	if cli.ExitFailed != 5 {
		t.Errorf("the units know another code than %d", cli.ExitFailed)
	}
}
