// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"testing"
)

// TestOpenAPINodeQuery: the description has each parameter that the handler reads of a
// query, and no other. What it reads are the strings at the variable v, and behind
// number.
func TestOpenAPINodeQuery(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../query/query.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var read []string
	literal := func(e ast.Expr) {
		if l, ok := e.(*ast.BasicLit); ok && l.Kind == token.STRING {
			name, err := strconv.Unquote(l.Value)
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, name)
		}
	}
	named := func(e ast.Expr, name string) bool { id, ok := e.(*ast.Ident); return ok && id.Name == name }
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.IndexExpr:
			if named(n.X, "v") {
				literal(n.Index)
			}
		case *ast.CallExpr:
			f, ok := n.Fun.(*ast.SelectorExpr)
			if len(n.Args) > 0 && (ok && named(f.X, "v") || named(n.Fun, "number")) {
				literal(n.Args[0])
			}
		}
		return true
	})
	slices.Sort(read)
	read = slices.Compact(read)

	s := newSite(t, rowsOf("n1"), false)
	_, text := s.ask("GET", "/openapi.json", nil)
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name, In string
				Schema   struct{ Type string }
			}
		}
	}
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, p := range doc.Paths["/v1/nodes"]["get"].Parameters {
		said = append(said, p.Name)
		if p.In != "query" || (p.Schema.Type == "array") != (p.Name == "label" || p.Name == "setting") {
			t.Errorf("%+v", p)
		}
	}
	slices.Sort(said)
	if !slices.Equal(said, read) {
		t.Errorf("described are %q, and read are %q", said, read)
	}
}
