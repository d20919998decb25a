// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/bootagent/decide"
)

// doers names the type here, or the file, that acts on each event of the table.
var doers = map[decide.Event]string{decide.Begin: "begin", decide.Look: "looked", decide.Answer: "answered", decide.Try: "try", decide.Made: "made", decide.Probed: "probed",
	decide.Doubted: "doubted", decide.Undo: "undone", decide.Effect: "inEffect", decide.Judged: "judged", decide.Early: "starting",
	decide.Swap: "operate.go", decide.Boot: "choose.go", decide.Fetched: "choose.go", decide.Sought: "choose.go"}

// Each act of the table has a case of its event that does it, also those of the loader, and a type
// here does nothing that no row leads to.
func TestEveryActIsDone(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	constants, cases := map[string]string{}, map[string]map[string]bool{} // of package decide by their value; acts by doer
	for _, name := range append(files, "../../decide/table.go", "../operate/operate.go", "../../boot/initramfs/choose.go") {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			doer := filepath.Base(name)
			if f, ok := d.(*ast.FuncDecl); ok && f.Name.Name == "act" {
				doer = receiver(f)
			}
			if cases[doer] == nil {
				cases[doer] = map[string]bool{}
			}
			ast.Inspect(d, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.ValueSpec:
					if typ, ok := n.Type.(*ast.Ident); !ok || typ.Name != "Act" {
						break
					}
					for i, v := range n.Values {
						if lit, ok := v.(*ast.BasicLit); ok {
							constants[lit.Value] = n.Names[i].Name
						}
					}
				case *ast.CaseClause:
					for _, e := range n.List {
						if s, ok := e.(*ast.SelectorExpr); ok {
							cases[doer][s.Sel.Name] = isDecide(s)
						}
					}
				}
				return true
			})
		}
	}
	for _, r := range decide.Table {
		name, done := constants[`"`+string(r.Act)+`"`], cases[doers[r.On]]
		if name == "" {
			t.Errorf("%s: act %q has no constant", r.Name, r.Act)
		}
		if _, ok := done[name]; !ok {
			t.Errorf("%s: %s does nothing for act %s", r.Name, doers[r.On], name)
			continue
		}
		done[name] = false
	}
	for doer, acts := range cases {
		for name, left := range acts {
			if left && !strings.HasSuffix(doer, ".go") {
				t.Errorf("no row leads to act %s of %s", name, doer)
			}
		}
	}
}

func receiver(f *ast.FuncDecl) string {
	typ := f.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	return typ.(*ast.Ident).Name
}

func isDecide(s *ast.SelectorExpr) bool {
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == "decide"
}
