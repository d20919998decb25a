// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
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

// TestEachLargePackageHasAReason: a package of more than 1,200 lines is one noun all the
// same, and docs/rationale.md says which.
func TestEachLargePackageHasAReason(t *testing.T) {
	text, err := os.ReadFile("../../docs/rationale.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range List(t, "./...") {
		lines := 0
		for _, name := range p.GoFiles {
			data, err := os.ReadFile(filepath.Join("../..", p.own(), name))
			if err != nil {
				t.Fatal(err)
			}
			lines += bytes.Count(data, []byte("\n"))
		}
		row := strings.Contains(string(text), "| `"+p.own()+"` |")
		switch {
		case lines > 1200 && !row:
			t.Errorf("%s has %d lines: say in docs/rationale.md why it is one package, or part it", p.own(), lines)
		case lines <= 1100 && row:
			t.Errorf("%s has %d lines: docs/rationale.md excuses it for nothing", p.own(), lines)
		}
	}
}
