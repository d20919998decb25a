// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/packaging/systemd"
	"github.com/caisson-os/caisson/spec"
)

// What a mount says of units holds at boot: systemd reads it before it starts any.
func TestOrderOfMounts(t *testing.T) {
	const dropIn, agent = "etc/systemd/system/%s.d/60-caisson-mounts.conf", "caisson-agent.service"
	const remote = "caisson-remote.service"
	wants := "[Unit]\nWants=" + remote + "\n"
	units := map[string]string{
		"usr/lib/systemd/system/sysinit.target":               "[Unit]\nAfter=local-fs.target\n",
		"usr/lib/systemd/system/local-fs.target":              "[Unit]\nDefaultDependencies=no\n",
		"usr/lib/systemd/system/network.target":               "[Unit]\n",
		"usr/lib/systemd/system/network-online.target":        "[Unit]\nAfter=network.target\n",
		"usr/lib/systemd/system/remote-fs.target":             "[Unit]\n",
		"usr/lib/systemd/system/multi-user.target":            "[Unit]\n",
		"usr/lib/systemd/system/docker.service":               "[Unit]\n",
		"etc/systemd/system/multi-user.target.wants/" + agent: "",
		"usr/lib/systemd/system/nfs-server.service":           "[Unit]\nDefaultDependencies=no\nAfter=network.target local-fs.target\n",
		"usr/lib/systemd/system/scripts.service":              "[Unit]\nAfter=remote-fs.target\n",
		"usr/lib/systemd/system/postgresql@.service":          "[Unit]\nAfter=network.target\n",
		"usr/lib/systemd/system/early.service":                "[Unit]\nDefaultDependencies = no\nBefore=sysinit.target\n",
		"etc/systemd/system/networking.service":               "[Unit]\nBefore=network.target shutdown.target\n",
		"usr/lib/systemd/system/networking.service":           "[Unit]\n",
		"usr/lib/systemd/system/openipmi@now.service":         "[Unit]\nBefore=caisson-agent.service\n",
	}
	for _, own := range []string{agent, "caisson-early.service", remote} {
		text, err := systemd.Units.ReadFile(own)
		if err != nil {
			t.Fatal(err)
		}
		units["usr/lib/systemd/system/"+own] = string(text)
	}
	const comes = "[Unit]\nAfter=caisson-agent.service\n"
	for _, tc := range []struct {
		before, after, fstype string
		want                  map[string]string // drop-ins, by unit
		said                  string
	}{
		{"db.service", "", "ext4", map[string]string{"db.service": comes}, ""},
		{"postgresql@main.service docker.service", "", "ext4", map[string]string{"postgresql@main.service": comes}, ""},
		{"nfs-server.service", "", "ext4", map[string]string{"nfs-server.service": comes}, ""},
		{"", "network-online.target iscsid.service", "ext4", map[string]string{agent: wants,
			remote: "[Unit]\nAfter=iscsid.service\nAfter=network-online.target\nWants=network-online.target\n"}, ""},
		{"scripts.service remote-fs.target", "network-online.target", "nfs4", map[string]string{agent: wants, "scripts.service": comes,
			"remote-fs.target": "[Unit]\nAfter=" + remote + "\n", remote: "[Unit]\nAfter=network-online.target\nWants=network-online.target\n"}, ""},
		{"", "scripts.service", "ext4", map[string]string{agent: "[Unit]\nAfter=scripts.service\n"}, ""},
		{"local-fs.target", "", "ext4", map[string]string{"local-fs.target": "[Unit]\nAfter=caisson-early.service\n"}, ""},
		{"early.service", "", "ext4", map[string]string{"early.service": "[Unit]\nAfter=caisson-early.service\n"}, ""},
		{"systemd-udevd.service", "", "ext4", nil, "systemd-udevd.service"},
		{"local-fs.target", "", "fuse", nil, "local-fs.target"},
		{"network.target", "network-online.target", "nfs", map[string]string{agent: wants,
			remote: "[Unit]\nAfter=network-online.target\nWants=network-online.target\n"}, "network.target"},
		{"networking.service", "", "ext4", map[string]string{"networking.service": "[Unit]\nAfter=caisson-early.service\n"}, ""},
		{"db.service", "db.service", "ext4", map[string]string{"db.service": comes}, "after db.service"},
		{"", "docker.service", "ext4", nil, "docker.service"},
		{"", "multi-user.target", "ext4", nil, "multi-user.target"},
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
			n.Overlay.Items.Mounts = []spec.Mount{{ID: "m", Target: "/srv/m", Type: tc.fstype, Before: strings.Fields(tc.before), After: strings.Fields(tc.after)}}
			if err := n.order(); err != nil {
				t.Fatal(err)
			}
			for unit, want := range tc.want {
				if got, err := os.ReadFile(n.path(fmt.Sprintf(dropIn, unit))); err != nil || string(got) != want {
					t.Errorf("%s: %q, %v; want %q", unit, got, err, want)
				}
			}
			made := len(tc.want)
			if _, ok := tc.want[remote]; ok {
				made++
				if got, err := os.ReadFile(n.path("/etc/caisson/remote")); err != nil || string(got) != "/srv/m\n" {
					t.Errorf("%q, %v", got, err)
				}
			}
			if len(n.wrote) != made {
				t.Errorf("wrote %q", n.wrote)
			}
			if (tc.said == "") != (said == "") || !strings.Contains(said, tc.said) {
				t.Errorf("said %q, want %q", said, tc.said)
			}
		})
	}
}
