// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/timeservice"
)

// TestTimeServers: the service that the layer has hears of the site's servers, in place of
// those of its package.
func TestTimeServers(t *testing.T) {
	for _, s := range timeservice.All {
		t.Run(s.Package, func(t *testing.T) {
			n := newNode(t, t.TempDir(), false)
			put(t, n, "usr/lib/systemd/system/"+s.Unit, "")
			put(t, n, s.Config, "pool 2.debian.pool.ntp.org iburst\nrtcsync\n")
			got := do(t, n)(s.Config)
			if !strings.Contains(got, "ntp.example.org") || strings.Contains("\n"+got, "\npool") {
				t.Errorf("%s: %q", s.Config, got)
			}

			own := newNode(t, t.TempDir(), false)
			put(t, own, "usr/lib/systemd/system/"+s.Unit, "")
			own.Overlay.Items.Files = []spec.File{{Path: s.Config, Content: "own", Mode: "0644"}}
			if got := do(t, own)(s.Config); got != "own" {
				t.Errorf("the site's own %s: %q", s.Config, got)
			}
		})
	}
}

func put(t *testing.T, n *Node, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.path(name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
