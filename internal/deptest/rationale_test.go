// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// TestEachDependencyHasAReason: a direct dependency without a line in
// docs/rationale.md has not been decided on.
func TestEachDependencyHasAReason(t *testing.T) {
	out, err := Go("mod", "edit", "-json")
	if err != nil {
		t.Fatal(err)
	}
	var mod struct {
		Require []struct {
			Path     string
			Indirect bool
		}
		Tool []struct{ Path string }
	}
	if err := json.Unmarshal([]byte(out), &mod); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("../../docs/rationale.md")
	if err != nil {
		t.Fatal(err)
	}
	named := func(path string) bool { return strings.Contains(string(text), "| "+path+" |") }
	direct := 0
	for _, r := range mod.Require {
		if r.Indirect {
			continue
		}
		if direct++; !named(r.Path) {
			t.Errorf("docs/rationale.md has no row for %s", r.Path)
		}
	}
	if direct == 0 || !named("honnef.co/go/tools") {
		t.Error("the table of dependencies is not where this test looks")
	}
}
