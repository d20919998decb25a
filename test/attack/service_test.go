// SPDX-License-Identifier: Apache-2.0

package attack

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestServiceRowsAreRun: each package that rows name reads them, and each test that a
// row names is there.
func TestServiceRowsAreRun(t *testing.T) {
	names := map[string]bool{}
	for _, row := range LoadClass[Service](t, "service") {
		if names[row.Name] {
			t.Errorf("two rows are named %q", row.Name)
		}
		names[row.Name] = true
		want := `LoadClass[attack.Service](t, "service")`
		if row.Test != "" {
			want = "func " + row.Test + "(t *testing.T)"
		}
		files, err := filepath.Glob(filepath.Join("../..", row.At, "*_test.go"))
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
			t.Errorf("%s: package %q has no %s", row.Name, row.At, want)
		}
	}
}
