// SPDX-License-Identifier: Apache-2.0

package ownfiles

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/caisson-os/caisson/test/attack"
	"github.com/caisson-os/caisson/test/require"
)

// opens reports whether what a row put in the place of a file is opened.
func opens(t *testing.T, row attack.StateDisk, r rules) bool {
	t.Helper()
	dir := t.TempDir()
	row.Disks[0].Fill(t, dir)
	for name := range row.Disks[0].Files {
		f, err := r.open(filepath.Join(dir, name), os.O_RDONLY)
		if err == nil {
			_ = f.Close() // only read
			return true
		}
	}
	return false
}

// TestNoCheckIsVacuous takes each check away: something that was put on a state disk
// in place of a file is then opened.
func TestNoCheckIsVacuous(t *testing.T) {
	require.Root(t)
	rows := slices.DeleteFunc(attack.LoadClass[attack.StateDisk](t, "statedisk"), func(r attack.StateDisk) bool { return r.Check != "node/own files" })
	for _, row := range rows {
		if opens(t, row, whole) {
			t.Errorf("%s: it is opened", row.Name)
		}
	}
	for _, name := range slices.Concat(whole.flags.Names(), whole.file.Names()) {
		without := rules{whole.flags.Without(name), whole.file.Without(name)}
		if !slices.ContainsFunc(rows, func(row attack.StateDisk) bool { return opens(t, row, without) }) {
			t.Errorf("nothing more is opened without %q", name)
		}
	}
}
