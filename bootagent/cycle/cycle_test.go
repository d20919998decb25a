// SPDX-License-Identifier: Apache-2.0

package cycle

import (
	"go/ast"
	"go/parser"
	"go/token"
	"testing"

	"github.com/caisson-os/caisson/bootagent/decide"
)

// Each act of the table has a case that does it, also those of the loader.
func TestEveryActIsDone(t *testing.T) {
	named := func(file string) map[string]string { // constants of package decide by their value, or names after "case decide."
		a, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]string{}
		ast.Inspect(a, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				for i, v := range n.Values {
					if lit, ok := v.(*ast.BasicLit); ok {
						names[lit.Value] = n.Names[i].Name
					}
				}
			case *ast.CaseClause:
				for _, e := range n.List {
					if s, ok := e.(*ast.SelectorExpr); ok {
						names[s.Sel.Name] = "a case"
					}
				}
			}
			return true
		})
		return names
	}
	constants, cases := named("../decide/table.go"), map[decide.Event]map[string]string{decide.Swap: named("../operate/swap.go")}
	for _, e := range []decide.Event{decide.Boot, decide.Fetched, decide.Sought} {
		cases[e] = named("../boot/initramfs/choose.go")
	}
	here := named("cycle.go")
	for _, r := range decide.Table {
		name := constants[`"`+string(r.Act)+`"`]
		if name == "" {
			t.Errorf("%s: act %q has no constant", r.Name, r.Act)
		}
		done := cases[r.On]
		if done == nil {
			done = here
		}
		if done[name] == "" {
			t.Errorf("%s: nothing does act %s", r.Name, name)
		}
	}
}
