// SPDX-License-Identifier: Apache-2.0

package boot

import (
	"testing"

	"github.com/caisson-os/caisson/internal/cpio"
	"github.com/caisson-os/caisson/internal/paths"
)

// A module that is named is loaded: no device may ask for it, as for that of a file system
// or of reserved memory. Groups load what devices ask for.
func TestNamedModulesAreLoaded(t *testing.T) {
	m, err := readModules(layer(t, nil), release)
	if err != nil {
		t.Fatal(err)
	}
	policy := []string{"network", "sd-mod"}
	files, err := m.Select(policy)
	if err != nil {
		t.Fatal(err)
	}
	a := cpio.New()
	if err := m.pack(t.Context(), a, files, policy, &Report{}); err != nil {
		t.Fatal(err)
	}
	if got := unpacked(t, a.Bytes())[paths.ModulesLoad]; got != "overlay\nsd_mod\n" {
		t.Errorf("loaded first: %q", got)
	}
}
