// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/test/attack"
)

// What somebody has written into the journal reaches no kind unless it could be the
// node's own; what cannot be is counted as damage.
func TestForgedLines(t *testing.T) {
	tried := 0
	for _, row := range attack.LoadClass[attack.StateDisk](t, "statedisk") {
		if row.Lines == nil {
			continue
		}
		tried++
		t.Run(row.Name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, File), row.Journal(t, "ours"), 0o600); err != nil {
				t.Fatal(err)
			}
			j, err := Open(dir, item.Scopes{Kernel: "ours", Root: "ours", Disk: "ours"})
			if err != nil {
				t.Fatal(err)
			}
			defer j.Close() // the test is over
			got := j.Entries(row.Lines[0].Item)
			if control := row.Check == ""; (len(got) > 0) != control {
				t.Errorf("the kind is given %+v", got)
			}
			if wants := row.Check == "journal/key"; (j.DamagedLines() > 0) != wants {
				t.Errorf("%d damaged lines", j.DamagedLines())
			}
		})
	}
	if tried < 8 {
		t.Errorf("%d rows", tried)
	}
}
