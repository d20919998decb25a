// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRowsAreRun: each package that rows name reads them, and each test that a row names
// is there.
func TestRowsAreRun(t *testing.T) {
	t.Run("service", func(t *testing.T) {
		var rows []played
		for _, r := range LoadClass[Service](t, "service") {
			rows = append(rows, played{r.Name, r.At, r.Test})
		}
		areRun(t, rows, `LoadClass[attack.Service](t, "service")`)
	})
	t.Run("rescue", func(t *testing.T) {
		var rows []played
		for _, r := range LoadClass[Rescue](t, "rescue") {
			rows = append(rows, played{r.Name, r.At, r.Test})
		}
		areRun(t, rows, `LoadClass[attack.Rescue](t, "rescue")`)
	})
}

// played is what all rows say of where they are run.
type played struct{ name, at, test string }

func areRun(t *testing.T, rows []played, reads string) {
	names := map[string]bool{}
	for _, row := range rows {
		if names[row.name] {
			t.Errorf("two rows are named %q", row.name)
		}
		names[row.name] = true
		want := reads
		if row.test != "" {
			want = "func " + row.test + "(t *testing.T)"
		}
		files, err := filepath.Glob(filepath.Join("../..", row.at, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			found = found || strings.Contains(string(text), want)
		}
		if !found {
			t.Errorf("%s: package %q has no %s", row.name, row.at, want)
		}
	}
}
