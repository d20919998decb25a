// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// module is what a go.mod says.
type module struct {
	Module  struct{ Path string }
	Require []struct {
		Path     string
		Indirect bool
	}
	Tool []struct{ Path string }
}

// readModule reads a go.mod below the top.
func readModule(t *testing.T, name string) (m module) {
	t.Helper()
	out, err := Go("mod", "edit", "-json", name)
	if err == nil {
		err = json.Unmarshal([]byte(out), &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// TestEachDependencyHasAReason: a direct dependency, or a tool, without a row in the table of
// its module has not been decided on, and a row of something else has outlived it.
func TestEachDependencyHasAReason(t *testing.T) {
	for _, c := range []struct {
		mods []string
		page string
		head string // of the table
	}{
		{[]string{"go.mod", "packaging/deb/nfpm.mod"}, "docs/rationale.md", "| module | for |"},
		{[]string{"kube/go.mod"}, "docs/adr/rationale-fleet.md", "| of `kube/go.mod` | for |"},
	} {
		text, err := os.ReadFile(filepath.Join("../..", c.page))
		if err != nil {
			t.Fatal(err)
		}
		_, table, found := strings.Cut(string(text), "\n"+c.head+"\n|---|---|\n")
		table, _, _ = strings.Cut(table, "\n\n")
		if !found {
			t.Fatalf("%s has no table %s", c.page, c.head)
		}
		wants := map[string]string{} // module → the file that names it
		for _, name := range c.mods {
			m := readModule(t, name)
			for _, r := range m.Require {
				isTool := slices.ContainsFunc(m.Tool, func(tool struct{ Path string }) bool { return strings.HasPrefix(tool.Path+"/", r.Path+"/") })
				if (!r.Indirect || isTool) && r.Path != Module {
					wants[r.Path] = name
				}
			}
		}
		rows := map[string]bool{}
		for row := range strings.Lines(table) {
			path, _, _ := strings.Cut(strings.TrimPrefix(row, "| "), " |")
			if rows[path] {
				t.Errorf("%s has two rows for %s", c.page, path)
			}
			rows[path] = true
			if wants[path] == "" {
				t.Errorf("%s has a row for %s, which is not a direct dependency or tool of %q", c.page, path, c.mods)
			}
		}
		for path, name := range wants {
			if !rows[path] {
				t.Errorf("%s has no row for %s of %s", c.page, path, name)
			}
		}
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
