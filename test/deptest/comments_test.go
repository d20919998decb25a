// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	sentence = regexp.MustCompile(`(?s)[^.;:]*\bimports? it\b`)
	word     = regexp.MustCompile(`[a-z]+(/[a-z-]+)*`)
)

// TestCommentsNameImporters: a package whose comment says who imports it is imported
// by them, and where it says "Only", by nobody else but tests.
func TestCommentsNameImporters(t *testing.T) {
	all := List(t, "./...")
	dir, err := Go("list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		t.Fatal(err)
	}
	there, importers := map[string]bool{}, map[string][]string{}
	for _, p := range all {
		there[p.own()] = true
		for _, dep := range p.Imports {
			if other, own := strings.CutPrefix(dep, Module+"/"); own {
				importers[other] = append(importers[other], p.own())
			}
		}
	}
	checked := 0
	for _, p := range all {
		for _, claim := range claims(t, filepath.Join(strings.TrimSpace(dir), p.own()), p.GoFiles) {
			checked++
			for _, wrong := range falsehoods(claim, there, importers[p.own()]) {
				t.Errorf("%s: %q: %s", p.own(), claim, wrong)
			}
		}
	}
	if checked < 40 {
		t.Errorf("%d comments say who imports their package, more do", checked)
	}
}

// claims returns what a package's comment says about its importers.
func claims(t *testing.T, dir string, files []string) []string {
	var text string
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		text += f.Doc.Text()
	}
	var out []string
	for _, s := range sentence.FindAllString(text, -1) {
		if s = strings.Join(strings.Fields(s), " "); !strings.Contains(s, " may ") && !strings.Contains(s, " not ") { // who may is a rule's
			out = append(out, s)
		}
	}
	return out
}

// falsehoods compares one claim with who imports the package. "Packages below a" are
// all that are there.
func falsehoods(claim string, there map[string]bool, importers []string) []string {
	var out, names []string
	for _, name := range word.FindAllString(claim, -1) {
		switch {
		case strings.Contains(claim, "below "+name) || strings.Contains(claim, name+" and below"):
			names = append(names, name+"/...")
		case there[name]:
			names = append(names, name)
			if !slices.Contains(importers, name) {
				out = append(out, name+" does not import it")
			}
		case strings.Contains(name, "/"):
			out = append(out, "there is no "+name)
		}
	}
	if !strings.HasPrefix(strings.ToLower(claim), "only ") {
		return out
	}
	for _, name := range importers {
		if !matches("test/...", name) && !anyMatches(names, name) {
			out = append(out, name+" imports it, too")
		}
	}
	return out
}

func TestFalsehoods(t *testing.T) {
	for _, row := range []struct {
		claim     string
		importers []string
		want      int
	}{
		{"Only a/b imports it", []string{"a/b"}, 0},
		{"Only a/b and c/d import it", []string{"a/b", "test/vm"}, 1},
		{"Only a/b imports it", []string{"a/b", "c/d"}, 1},
		{"a/b imports it", []string{"a/b", "c/d"}, 0},
		{"Only tests import it", []string{"test/vm"}, 0},
		{"Only tests import it", []string{"a/b"}, 1},
		{"Only packages below a import it", []string{"a/b"}, 0},
		{"Only packages below a import it", []string{"c/d"}, 1},
		{"a/gone imports it", nil, 1},
	} {
		if got := falsehoods(row.claim, map[string]bool{"a/b": true, "c/d": true}, row.importers); len(got) != row.want {
			t.Errorf("%q with %q: %q", row.claim, row.importers, got)
		}
	}
}
