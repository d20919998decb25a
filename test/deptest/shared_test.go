// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestHandlersShareNothing: a handler that is a closure serves requests at once, so it sets
// no variable from outside of it.
func TestHandlersShareNothing(t *testing.T) {
	handlers := 0
	err := filepath.WalkDir("../..", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			f, ok := n.(*ast.FuncLit)
			if !ok || !takesRequest(f.Type) {
				return true
			}
			handlers++
			for _, at := range setsOutside(f) {
				t.Errorf("%s: the handler sets what all requests share", set.Position(at))
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if handlers < 10 {
		t.Errorf("%d handlers are closures, more are", handlers)
	}
}

// TestSetsOutside shows which assignments the test above finds.
func TestSetsOutside(t *testing.T) {
	for text, want := range map[string]int{"p.Title = x": 1, "*q = x": 1, "n++": 1, "p.list[0] = x": 1, "p := p; p.Title = x": 0, "var y string; y = x": 0, "req.Body = nil": 0, "func() { n = 2 }()": 1} {
		file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x; func f() { p, q, n, x := 1, 2, 3, 4; _ = func(w http.ResponseWriter, req *http.Request) { "+text+" } }", 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if f, ok := n.(*ast.FuncLit); ok && takesRequest(f.Type) {
				if got := len(setsOutside(f)); got != want {
					t.Errorf("%s: %d assignments, want %d", text, got, want)
				}
			}
			return true
		})
	}
}

func takesRequest(f *ast.FuncType) bool {
	for _, p := range f.Params.List {
		if star, ok := p.Type.(*ast.StarExpr); ok {
			if s, ok := star.X.(*ast.SelectorExpr); ok && s.Sel.Name == "Request" {
				return true
			}
		}
	}
	return false
}

// setsOutside returns where a function sets a variable that was declared before it.
func setsOutside(f *ast.FuncLit) (at []token.Pos) {
	check := func(x ast.Expr) {
		for {
			switch e := x.(type) {
			case *ast.SelectorExpr:
				x = e.X
				continue
			case *ast.IndexExpr:
				x = e.X
				continue
			case *ast.StarExpr:
				x = e.X
				continue
			case *ast.ParenExpr:
				x = e.X
				continue
			case *ast.Ident:
				if e.Obj != nil && e.Obj.Pos() < f.Pos() {
					at = append(at, e.Pos())
				}
			}
			return
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch s := n.(type) {
		case *ast.AssignStmt:
			if s.Tok != token.DEFINE {
				for _, x := range s.Lhs {
					check(x)
				}
			}
		case *ast.IncDecStmt:
			check(s.X)
		}
		return true
	})
	return at
}
