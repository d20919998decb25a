// SPDX-License-Identifier: Apache-2.0

package doctext

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	namedTest = regexp.MustCompile(`\b(?:Test|Benchmark|Fuzz)[A-Z]\w+`)
	namedPath = regexp.MustCompile("`([a-z][a-z0-9_.-]*/[a-z0-9_./-]+)`")
	testFunc  = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w+)\(`)
)

// TestNames: a test that a page names is there, and so is a file or folder of the repository.
func TestNames(t *testing.T) {
	tests, err := testFuncs()
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for name, text := range pages(t) {
		for _, test := range namedTest.FindAllString(text, -1) {
			if named++; !tests[test] {
				t.Errorf("%s names %s, which is not there", name, test)
			}
		}
		for _, m := range namedPath.FindAllStringSubmatch(text, -1) {
			folder, _, _ := strings.Cut(m[1], "/")
			if _, err := os.Stat(filepath.Join(top, folder)); err != nil || folder == "bin" || folder == "out" {
				continue // of a node or a registry, or made by a build
			}
			if _, err := os.Stat(filepath.Join(top, m[1])); err != nil {
				t.Errorf("%s names `%s`, which is not there", name, m[1])
			}
		}
	}
	if named < 300 {
		t.Errorf("%d tests are named: is the pattern right?", named)
	}
}

// firstWord matches a comment that begins as one of a declaration does: with a name.
var firstWord = regexp.MustCompile(`^([a-z]\w*) [a-z]`)

// TestCommentsNameTheirOwn: the comment of a function or a type that begins with a name begins with its own.
func TestCommentsNameTheirOwn(t *testing.T) {
	seen := 0
	err := filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() && (e.Name() == "testdata" || e.Name() == ".git") {
			return cmp.Or(err, fs.SkipDir)
		}
		if filepath.Ext(name) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		for _, d := range f.Decls {
			own, doc := "", ""
			switch d := d.(type) {
			case *ast.FuncDecl:
				own, doc = d.Name.Name, d.Doc.Text()
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if t, ok := s.(*ast.TypeSpec); ok {
						own, doc = t.Name.Name, d.Doc.Text()
					}
				}
			}
			if m := firstWord.FindStringSubmatch(doc); m != nil && !strings.HasPrefix(own, "Test") {
				if seen++; m[1] != own {
					t.Errorf("%s: the comment of %s begins with %s", name, own, m[1])
				}
			}
		}
		return nil
	})
	if err != nil || seen < 3000 {
		t.Errorf("%d comments, %v: is the pattern right?", seen, err)
	}
}

// testFuncs returns the names of all tests of the repository, with those of the module kube.
func testFuncs() (map[string]bool, error) {
	tests := map[string]bool{}
	err := filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (e.Name() == ".git" || e.Name() == "out" || e.Name() == "bin"):
			return fs.SkipDir
		case e.IsDir() || !strings.HasSuffix(name, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(name)
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			tests[string(m[1])] = true
		}
		return err
	})
	return tests, err
}
