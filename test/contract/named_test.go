// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"regexp"
	"strings"
	"testing"
)

// named is the last cell of a row that names a test.
var named = regexp.MustCompile("^`([a-z/]+)` (Test[A-Za-z0-9]+)$")

// TestNamedTestsAreThere: pages that promise something by naming a test name one that
// there is.
func TestNamedTestsAreThere(t *testing.T) {
	for page, least := range map[string]int{"../../docs/from/gitopper.md": 20, "../../docs/from/kured.md": 25} {
		_, table, _ := strings.Cut(string(read(t, page)), "| test |\n|---|---|---|\n")
		table, _, _ = strings.Cut(table, "\n\n")
		rows := strings.Split(strings.TrimSpace(table), "\n")
		if len(rows) < least {
			t.Errorf("%s: %d rows, want %d at least", page, len(rows), least)
		}
		for _, row := range rows {
			cells := strings.Split(strings.Trim(row, "| "), " | ")
			m := named.FindStringSubmatch(cells[len(cells)-1])
			if len(cells) != 3 || m == nil {
				t.Errorf("%s: %q is not a row of three cells that ends with a test", page, row)
				continue
			}
			found := false
			for _, file := range glob(t, "../../"+m[1]+"/*_test.go", 1) {
				found = found || strings.Contains(string(read(t, file)), "\nfunc "+m[2]+"(")
			}
			if !found {
				t.Errorf("%s: %s has no %s", page, m[1], m[2])
			}
		}
	}
}
