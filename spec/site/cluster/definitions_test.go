// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec/site/calendar"
)

// TestDefinitions holds kube/deploy/crds to the shapes. CAISSON_UPDATE=1 writes them.
func TestDefinitions(t *testing.T) {
	dir := "../../../kube/deploy/crds"
	for _, k := range Kinds() {
		text, err := k.Definition()
		if err != nil {
			t.Fatal(err)
		}
		if len(text) > 1<<20 {
			t.Errorf("the definition of %s has %d bytes: an API server takes 1.5 MB at most, with what it adds", k.Kind, len(text))
		}
		name := filepath.Join(dir, Group+"_"+k.Plural+".yaml")
		if os.Getenv("CAISSON_UPDATE") != "" {
			if err := os.WriteFile(name, text, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		held, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(held, text) {
			t.Errorf("%s is not as 'caisson schema --crd' prints it: look at what changed, then run this test with CAISSON_UPDATE=1", name)
		}
	}
	all, err := os.ReadFile(filepath.Join(dir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	found, _ := filepath.Glob(filepath.Join(dir, Group+"_*.yaml"))
	if len(found) != len(Kinds()) || strings.Count(string(all), "  - "+Group) != len(Kinds()) {
		t.Errorf("%s has %d files for %d kinds, and its kustomization %d", dir, len(found), len(Kinds()), strings.Count(string(all), "  - "+Group))
	}
}

// TestListsHaveAnEnd: each list of an author's object has at most so many entries, in the API server
// already; those of a window as many as the reader takes.
func TestListsHaveAnEnd(t *testing.T) {
	lists := 0
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case node:
			if v["type"] == "array" {
				lists++
				most, bound := v["maxItems"].(int)
				if window := strings.HasSuffix(path, ".spec.properties.opens") || strings.HasSuffix(path, ".spec.properties.except"); !bound || window != (most == calendar.MaxRules) {
					t.Errorf("%s has at most %d entries", path, most)
				}
			}
			for name, one := range v {
				walk(path+"."+name, one)
			}
		case []any:
			for _, one := range v {
				walk(path, one)
			}
		}
	}
	for _, k := range Kinds() {
		walk(k.Kind, generic(k.schema))
	}
	if lists < 100 {
		t.Errorf("%d lists", lists)
	}
}
