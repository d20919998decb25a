// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestAuthoring runs testdata/authoring: one archive a case, whose files are a site
// in more than one file. Its file "want" holds what is reported and, where that is
// no error, what node n1 is explained to get. CAISSON_UPDATE=1 rewrites it.
func TestAuthoring(t *testing.T) {
	cases, err := filepath.Glob("testdata/authoring/*.txtar")
	if err != nil || len(cases) < 5 {
		t.Fatal(cases, err)
	}
	for _, name := range cases {
		t.Run(filepath.Base(name), func(t *testing.T) {
			archive := readTable(t, name)
			fsys, want := fstest.MapFS{}, -1
			for i, f := range archive.Files {
				if f.Name == "want" {
					want = i
					continue
				}
				fsys[f.Name] = &fstest.MapFile{Data: f.Data}
			}
			s, r := Parse(fsys, "site/site.yaml")
			var got strings.Builder
			for _, p := range r.Problems {
				fmt.Fprintf(&got, "%s %s: %s", p.Severity, p.Rule, p)
				if p.Hint != "" {
					fmt.Fprintf(&got, " (%s)", p.Hint)
				}
				got.WriteByte('\n')
			}
			if s != nil {
				e, err := s.Explain("n1", nil)
				if err != nil {
					t.Fatal(err)
				}
				e.Write(&got)
			}
			if os.Getenv("CAISSON_UPDATE") != "" {
				if want < 0 {
					archive.Files, want = append(archive.Files, txtar.File{Name: "want"}), len(archive.Files)
				}
				archive.Files[want].Data = []byte(got.String())
				if err := os.WriteFile(name, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if want < 0 || string(archive.Files[want].Data) != got.String() {
				t.Errorf("got\n%s", got.String())
			}
		})
	}
}

// A Site that includes many small files of one directory does not read more than
// the bound.
func TestIncludeIsBounded(t *testing.T) {
	fsys := fstest.MapFS{"site.yaml": {Data: []byte(head + "include: [\"conf/*.yaml\"]\n")}}
	for i := range 1100 {
		fsys[fmt.Sprintf("conf/%04d.yaml", i)] = &fstest.MapFile{Data: []byte("conf: {sysctl: {vm.swappiness: 1}}\n")}
	}
	_, r := Parse(fsys, "site.yaml")
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "more than 1000 files are included") {
		t.Errorf("%v", err)
	}
	deep := fstest.MapFS{"site.yaml": {Data: []byte(head + "include: [\"0.yaml\"]\n")}}
	for i := range 20 {
		deep[fmt.Sprintf("%d.yaml", i)] = &fstest.MapFile{Data: fmt.Appendf(nil, "%sinclude: [%d.yaml]\n", head, i+1)}
	}
	_, r = Parse(deep, "site.yaml")
	if err := r.Err(); err == nil || !strings.HasPrefix(err.Error(), "7.yaml:4:11: ") || !strings.Contains(err.Error(), "files name files more than 8 deep") {
		t.Errorf("%v", err)
	}
}
