// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/internal/paths"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/require"
)

// What a kind writes on a running node is not somebody's: only the rest is named.
func TestWhatKindsWriteIsNotForeign(t *testing.T) {
	require.Root(t)
	m := newMachine(t)
	m.publish(1, layerNamed("a"), "10")
	m.boot()
	m.apply()
	m.publishItems(2, layerNamed("a"), spec.Items{
		Files:   []spec.File{{Path: "/etc/app.conf", Content: "x\n"}},
		Units:   []spec.Unit{{Name: "app.service", Content: "[Service]\n[Install]\nWantedBy=multi-user.target\n", State: spec.UnitEnabled}},
		Modules: &spec.Modules{Blacklist: []string{"pcspkr"}},
	})
	ours := []string{"/etc/app.conf", "/etc/systemd/system/app.service", "/etc/systemd/system/multi-user.target.wants/app.service", "/etc/modprobe.d/zz-caisson-modules.conf"}
	for _, name := range append(ours, "/etc/by-hand") { // as an overlay shows what was written
		at := m.root + paths.RunUpper + "/upper" + name
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	st := m.sync()
	for _, name := range ours {
		if _, err := os.Lstat(m.root + name); err != nil {
			t.Errorf("it was not written: %v", err)
		}
	}
	if !slices.Equal(st.Foreign, []string{"/etc/by-hand"}) {
		t.Errorf("foreign: %q", st.Foreign)
	}
}
