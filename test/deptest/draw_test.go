// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/caisson-os/caisson/test/doctext"
)

// TestMap holds docs/map.svg to the real imports. Rewrite it with -update.
func TestMap(t *testing.T) {
	const name = "../../docs/map.svg"
	all := List(t, "./...")
	if c := cycle(roomGraph(all)); c != nil {
		t.Errorf("rooms import each other in a circle: %s", strings.Join(c, " → "))
	}
	got := Draw(all)
	if update {
		if err := os.WriteFile(name, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil || string(want) != got {
		t.Errorf("docs/map.svg is not the map of the imports (%v); run: CAISSON_UPDATE=1 go test ./test/deptest", err)
	}
}

// TestPackagesPage holds docs/packages.md to the packages' comments and the floors.
// Rewrite it with -update.
func TestPackagesPage(t *testing.T) {
	const page = "../../docs/packages.md"
	all := List(t, "./...")
	for _, p := range all {
		if len(p.GoFiles) == 0 {
			continue // tests only
		}
		name := path.Base(p.own())
		if !strings.HasPrefix(p.Doc, "Package "+name+" ") && !strings.HasPrefix(p.Doc, "Command "+name+" ") {
			t.Fatalf("the comment of %s begins with %.40q, not with its name", p.own(), p.Doc)
		}
	}
	got := doctext.Wrap(PackagesPage(all, folders), doctext.Width)
	if update {
		if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(page); err != nil || string(want) != got {
		t.Errorf("docs/packages.md is not what the packages say (%v); run: CAISSON_UPDATE=1 go test ./test/deptest", err)
	}
}

// TestRoomGraph leaves out arrows that another path implies.
func TestRoomGraph(t *testing.T) {
	p := func(name string, imports ...string) Package {
		for i := range imports {
			imports[i] = Module + "/" + imports[i]
		}
		return Package{ImportPath: Module + "/" + name, Imports: imports}
	}
	g := roomGraph([]Package{p("spec"), p("oci"), p("oci/trust", "spec", "oci"), p("fleet/publish", "oci/trust", "spec", "internal/cli"), p("internal/cli")})
	want := map[string][]string{"spec": {}, "oci": {}, "oci/trust": {"oci", "spec"}, "fleet": {"oci/trust"}}
	if diff := cmp.Diff(want, g); diff != "" {
		t.Error(diff)
	}
	if c := cycle(map[string][]string{"a": {"b"}, "b": {"c"}, "c": {"b"}}); !slices.Equal(c, []string{"b", "c", "b"}) {
		t.Errorf("cycle = %q", c)
	}
	if diff := cmp.Diff(map[string]int{"spec": 0, "oci": 0, "oci/trust": 1, "fleet": 2}, floors(g)); diff != "" {
		t.Error(diff)
	}
}
