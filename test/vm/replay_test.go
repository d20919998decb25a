// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/tell/events"
	"github.com/caisson-os/caisson/internal/machine"
	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/test/traces"
)

// replays decides again, from the facts alone, what a machine's loader and agent have decided
// since it started, and gathers it. A machine of an earlier release has noted nothing.
func replays(t *testing.T, s *machine.Session) {
	t.Helper()
	noted := run(t, s, "sudo cat "+paths.RunDecisions+" 2>/dev/null || true")
	for line := range strings.Lines(noted) {
		var d events.Decision
		if err := json.Unmarshal([]byte(line), &d); err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		if step := decide.Next(&d.Facts); step.Name != d.Step {
			t.Errorf("the machine decided %s, and from the same facts here it is %s:\n%s", d.Step, step.Name, line)
		}
	}
	if err := traces.Add([]byte(noted)); err != nil {
		t.Fatal(err)
	}
}
