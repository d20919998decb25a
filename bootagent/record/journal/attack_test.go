// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/items/item"
	"github.com/caisson-os/caisson/test/attack"
)

func forgeries(t *testing.T) []attack.StateDisk {
	rows := attack.LoadClass[attack.StateDisk](t, "statedisk")
	return slices.DeleteFunc(rows, func(r attack.StateDisk) bool { return r.Lines == nil })
}

// believed returns what the kind of a row's line is given, and the lines set aside.
func believed(t *testing.T, row attack.StateDisk, r rules) (given []item.Entry, damaged int) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, File), row.Journal(t, "ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := open(dir, item.Scopes{Kernel: "ours", Root: "ours", Disk: "ours"}, r)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close() // the test is over
	return j.Entries(row.Lines[0].Item), j.DamagedLines()
}

// What somebody has written into the journal reaches no kind unless it could be the
// node's own; what cannot be is counted as damage.
func TestForgedLines(t *testing.T) {
	rows := forgeries(t)
	for _, row := range rows {
		t.Run(row.Name, func(t *testing.T) {
			got, damaged := believed(t, row, whole)
			if control := row.Check == ""; (len(got) > 0) != control {
				t.Errorf("the kind is given %+v", got)
			}
			_, name, _ := strings.Cut(row.Check, "/")
			if wants := slices.Contains(whole.entry.Names(), name); (damaged > 0) != wants {
				t.Errorf("%d damaged lines", damaged)
			}
		})
	}
	if len(rows) < 15 {
		t.Errorf("%d rows", len(rows))
	}
}

// TestNoCheckIsVacuous takes each check away: the lines that name it then reach
// their kind.
func TestNoCheckIsVacuous(t *testing.T) {
	named := map[string]bool{}
	for _, row := range forgeries(t) {
		_, name, attacks := strings.Cut(row.Check, "/")
		if !attacks {
			continue
		}
		named[name] = true
		if got, _ := believed(t, row, rules{whole.entry.Without(name), whole.alive.Without(name)}); len(got) == 0 {
			t.Errorf("%s: without %q all is the same", row.Name, name)
		}
	}
	for _, name := range slices.Concat(whole.entry.Names(), whole.alive.Names()) {
		if !named[name] {
			t.Errorf("no row names the check %q", name)
		}
	}
}
