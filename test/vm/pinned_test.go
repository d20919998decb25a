// SPDX-License-Identifier: Apache-2.0

package vm

import (
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/test/pinned"
)

// pinnedFleet is a fleet that the release published, its programs still in use; layer is the
// index of its layer.
func pinnedFleet(t *testing.T, edits ...string) (f *Fleet, layer string) {
	t.Helper()
	needs(t)
	dir := pinned.Programs(t)
	f = fleetBy(t, filepath.Join(dir, "bin"), filepath.Join(dir, "site.yaml"), edits...)
	return f, f.index(t)
}

// upgrade goes on with the programs of this source: they build a layer, whose index is
// returned, and write the loader again. Kernel arguments stay: with others no node goes there
// softly.
func (f *Fleet) upgrade(t *testing.T) (layer string) {
	t.Helper()
	f.Bin = programs(t)
	f.build(t)
	if err := f.Netboot(t.Context()); err != nil {
		t.Fatal(err)
	}
	return f.index(t)
}
