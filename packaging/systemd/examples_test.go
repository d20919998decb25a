// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/test/require"
)

// TestExampleUnits lets systemd read the units of examples/refresh, as if what
// they start were installed.
func TestExampleUnits(t *testing.T) {
	require.Tool(t, "systemd-analyze")
	units, err := filepath.Glob("../../examples/refresh/*.*er*")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	seen := 0
	for _, name := range units {
		if ext := filepath.Ext(name); ext != ".service" && ext != ".timer" {
			continue
		}
		seen++
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		// What verify would miss on this machine is not what is tested.
		installed := strings.NewReplacer("/usr/bin/caisson ", "/bin/true ", "Documentation=man:caisson-refresh(1)\n", "").Replace(string(text))
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), []byte(installed), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if seen != 2 {
		t.Fatalf("%d units, want 2: %q", seen, units)
	}
	out, err := exec.Command("systemd-analyze", "verify", filepath.Join(dir, "caisson-refresh.timer"), filepath.Join(dir, "caisson-refresh.service")).CombinedOutput()
	if err != nil || strings.Contains(string(out), "caisson-refresh") {
		t.Errorf("%v\n%s", err, out)
	}
}
