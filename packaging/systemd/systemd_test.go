// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"encoding/json"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/debroot"
	"github.com/caisson-os/caisson/test/require"
)

// TestConfinement holds the agent's unit to what systemd-analyze security finds:
// each switch is closed, or a comment in the unit names it and says why not.
func TestConfinement(t *testing.T) {
	require.Tool(t, "systemd-analyze")
	for _, unit := range []string{"./caisson-agent.service", "./caisson-early.service", "./caisson-remote.service"} {
		out, err := exec.Command("systemd-analyze", "security", "--offline=yes", "--json=short", "--no-pager", unit).CombinedOutput()
		if err != nil {
			require.Missing(t, "tools", "systemd-analyze security --offline: "+string(out))
		}
		explained(t, out)
	}
}

// TestEarlyIsConfinedAsTheAgent: it is the same program, which writes the same files, and the
// calls that TestNoCallOfTheServiceIsDenied reads are those of both.
func TestEarlyIsConfinedAsTheAgent(t *testing.T) {
	own := regexp.MustCompile(`^(Type|NotifyAccess|ExecStart|Restart|RestartSec|TimeoutStartSec|MemoryHigh|MemoryMax|RemainAfterExit)=`)
	confined := func(name string) (lines []string) {
		unit, err := Units.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		_, service, _ := strings.Cut(string(unit), "\n[Service]\n")
		service, _, _ = strings.Cut(service, "\n[Install]\n")
		for line := range strings.Lines(service) {
			if line = strings.TrimSpace(line); line != "" && line[0] != '#' && !own.MatchString(line) {
				lines = append(lines, line)
			}
		}
		return lines
	}
	agent := confined("caisson-agent.service")
	for _, name := range []string{"caisson-early.service", "caisson-remote.service"} {
		if other := confined(name); len(agent) < 10 || !slices.Equal(agent, other) {
			t.Errorf("the agent has %q, and %s %q", agent, name, other)
		}
	}
}

// TestLongConfinementOnDebian asks the systemd of each release that the agent's
// package is for: a later one knows of more.
func TestLongConfinementOnDebian(t *testing.T) {
	require.Long(t)
	for _, release := range debroot.Releases {
		t.Run(release, func(t *testing.T) {
			r := debroot.New(t, release)
			r.Put("caisson-agent.service", "tmp/caisson-agent.service")
			explained(t, []byte(r.Must("systemd-analyze security --offline=yes --json=short --no-pager /tmp/caisson-agent.service 2>/dev/null")))
		})
	}
}

// TestTheClockIsRead: windows and schedules ask adjtimex(2), which is one of @clock.
func TestTheClockIsRead(t *testing.T) {
	unit, err := Units.ReadFile("caisson-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	_, after, ok := strings.Cut(string(unit), "\nSystemCallFilter=~")
	if !ok || !strings.Contains(after, "\nSystemCallFilter=adjtimex\n") {
		t.Error("the service may not ask whether the clock is right: it would never start what has a window")
	}
}

// explained holds the unit to what systemd-analyze security printed.
func explained(t *testing.T, out []byte) {
	t.Helper()
	var findings []struct {
		Set      bool   `json:"set"`
		Name     string `json:"name"`
		Exposure string `json:"exposure"`
	}
	if err := json.Unmarshal(out, &findings); err != nil || len(findings) < 50 {
		t.Fatalf("%v\n%s", err, out)
	}
	unit, err := Units.ReadFile("caisson-agent.service")
	if err != nil {
		t.Fatal(err)
	}
	var comments, bounding string
	for line := range strings.Lines(string(unit)) {
		switch {
		case strings.HasPrefix(line, "#"):
			comments += line
		case strings.HasPrefix(line, "CapabilityBoundingSet="):
			bounding = line
		}
	}
	if bounding == "" {
		t.Error("the unit holds every capability")
	}
	for _, held := range strings.Fields(strings.TrimPrefix(bounding, "CapabilityBoundingSet=")) {
		if !regexp.MustCompile(held + `\b`).MatchString(comments) {
			t.Errorf("%s is held and no comment says why", held)
		}
	}
	for _, f := range findings {
		if f.Exposure == "" || f.Exposure == "0.0" || strings.HasPrefix(f.Name, "CapabilityBoundingSet=") {
			continue // closed, without effect for root, or what the set names
		}
		for _, name := range strings.Split(f.Name, "/") {
			name, what, _ := strings.Cut(name, "=~")
			what, _, _ = strings.Cut(what, "(")
			if !strings.Contains(comments, strings.TrimSuffix(name, "=")+"=") || !strings.Contains(comments, what) {
				t.Errorf("%s is open (%s) and no comment says why", f.Name, f.Exposure)
			}
		}
	}
}
