// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

// What a mount says of units holds at boot: systemd reads it before it starts any.
func TestOrderOfMounts(t *testing.T) {
	const dropIn, agent = "etc/systemd/system/%s.d/60-caisson-mounts.conf", "caisson-agent.service"
	units := map[string]string{
		"usr/lib/systemd/system/postgresql@.service":  "[Unit]\nAfter=network.target\n",
		"usr/lib/systemd/system/early.service":        "[Unit]\nDefaultDependencies = no\n",
		"etc/systemd/system/networking.service":       "[Unit]\nBefore=network.target shutdown.target\n",
		"usr/lib/systemd/system/networking.service":   "[Unit]\n",
		"usr/lib/systemd/system/openipmi@now.service": "[Unit]\nBefore=caisson-agent.service\n",
	}
	for _, tc := range []struct {
		before, after string
		want          map[string]string // drop-ins, by unit
		said          string
	}{
		{"db.service", "", map[string]string{"db.service": "[Unit]\nAfter=caisson-agent.service\n"}, ""},
		{"postgresql@main.service docker.service", "", map[string]string{"postgresql@main.service": "[Unit]\nAfter=caisson-agent.service\n"}, ""},
		{"", "network-online.target iscsid.service", map[string]string{agent: "[Unit]\nAfter=iscsid.service\nAfter=network-online.target\nWants=network-online.target\n"}, ""},
		{"local-fs.target", "", nil, "local-fs.target"},
		{"early.service", "", nil, "early.service"},
		{"networking.service", "", nil, "networking.service"},
		{"db.service", "db.service", map[string]string{"db.service": "[Unit]\nAfter=caisson-agent.service\n"}, "after db.service"},
		{"", "docker.service", nil, "docker.service"},
		{"", "multi-user.target", nil, "multi-user.target"},
	} {
		t.Run(tc.before+" mount "+tc.after, func(t *testing.T) {
			n := &Node{Root: t.TempDir(), Overlay: &spec.Overlay{}}
			var said string
			n.Say = func(format string, args ...any) { said += fmt.Sprintf(format, args...) }
			for name, text := range units {
				if err := os.MkdirAll(filepath.Dir(n.path(name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(n.path(name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			n.Overlay.Items.Mounts = []spec.Mount{{ID: "m", Before: strings.Fields(tc.before), After: strings.Fields(tc.after)}}
			if err := n.order(); err != nil {
				t.Fatal(err)
			}
			for unit, want := range tc.want {
				if got, err := os.ReadFile(n.path(fmt.Sprintf(dropIn, unit))); err != nil || string(got) != want {
					t.Errorf("%s: %q, %v; want %q", unit, got, err, want)
				}
			}
			if len(n.wrote) != len(tc.want) {
				t.Errorf("wrote %q", n.wrote)
			}
			if (tc.said == "") != (said == "") || !strings.Contains(said, tc.said) {
				t.Errorf("said %q, want %q", said, tc.said)
			}
		})
	}
}
