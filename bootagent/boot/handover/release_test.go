// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/spec"
)

func TestRelease(t *testing.T) {
	for _, c := range []struct{ name, version, baked, want string }{
		{"usual", "2026.11", "NAME=\"Debian\"\nID=debian", "NAME=\"Debian\"\nID=debian\nIMAGE_ID=\"metal-a\"\nIMAGE_VERSION=\"2026.11\"\n"},
		{"of an image already", "v2", "ID=debian\nIMAGE_ID=other\nIMAGE_VERSION=1\n", "ID=debian\nIMAGE_ID=\"metal-a\"\nIMAGE_VERSION=\"v2\"\n"},
		{"no version", "", "ID=debian\n", ""},
		{"not a distribution", "v2", "", ""},
	} {
		n := &Node{Root: t.TempDir(), Version: c.version, Overlay: &spec.Overlay{Core: spec.Core{Fleet: "metal-a"}}}
		if c.baked != "" {
			name := n.path("usr/lib/os-release")
			if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(name, []byte(c.baked), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := n.release(); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(n.path("etc/os-release")); string(got) != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
