// SPDX-License-Identifier: Apache-2.0

package site

import (
	_ "embed"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/caisson-os/caisson/spec"
)

// files makes an fs.FS of name, content pairs.
func files(pairs ...string) fs.FS {
	m := fstest.MapFS{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = &fstest.MapFile{Data: []byte(pairs[i+1])}
	}
	return m
}

// mustParse parses a file that has no error.
func mustParse(t testing.TB, text string) *Site {
	t.Helper()
	s, r := Parse(files("site.yaml", text), "site.yaml")
	if r.Err() != nil {
		var b strings.Builder
		r.Write(&b)
		t.Fatal(b.String())
	}
	return s
}

func TestQuickstart(t *testing.T) {
	s, r := Parse(os.DirFS("../../examples/quickstart"), "site.yaml")
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	if s.Name() != "quickstart" || s.Registry() != "oci:./out" || len(s.Nodes()) != 2 {
		t.Errorf("name %q, registry %q, %d nodes", s.Name(), s.Registry(), len(s.Nodes()))
	}
	vs, err := s.Variants()
	if err != nil {
		t.Fatal(err)
	}
	if len(vs) != 1 || vs[0].Name != "default" || !slices.Equal(vs[0].Nodes, []string{"alpha", "beta"}) {
		t.Errorf("variants = %+v", vs)
	}
	want := map[string]string{"alpha": "10", "beta": "1"}
	for node, swappiness := range want {
		o, err := s.Overlay(node, "sha256:aa")
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(o.Items.Sysctl, func(s spec.Sysctl) bool { return s.Key == "vm/swappiness" })
		if i < 0 || o.Items.Sysctl[i].Value != swappiness {
			t.Errorf("%s: sysctls %+v, want vm/swappiness %s", node, o.Items.Sysctl, swappiness)
		}
		data, err := spec.Encode(o)
		if err != nil {
			t.Fatal(err)
		}
		var again spec.Overlay
		if err := spec.Decode(data, &again); err != nil {
			t.Error(err)
		}
	}
}

//go:embed testdata/base.yaml
var base string // its parts are changed by replacing text

// golden compares got with testdata/name; CAISSON_UPDATE=1 writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if os.Getenv("CAISSON_UPDATE") != "" {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s:\n--- got\n%s--- want\n%s", file, got, want)
	}
}
