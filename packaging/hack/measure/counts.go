// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// counts holds the sums over all files.
type counts struct {
	lines, testLines, words int

	packages map[string]int   // product lines of each folder
	methods  map[string]int   // of each type
	found    map[string][]hit // by row
}

// hit is a name that has a row's property, and how much of it.
type hit struct {
	n    int
	name string
}

const (
	below        = "packages in bootagent"
	types        = "types of more than 60 methods"
	structs      = "structs of more than 15 fields"
	constructors = "constructors of more than 5 parameters"
	parameters   = "other functions of more than 5 parameters"
	functions    = "functions of more than 90 lines"
	cognitive    = "functions of a cognitive complexity over 35"
	large        = "packages of more than 1,200 lines"
	long         = "lines of more than 140 characters"
)

// atLeast adds a hit to a row if n is more than most.
func (c *counts) atLeast(row string, most, n int, name string) {
	if n > most {
		c.found[row] = append(c.found[row], hit{n, name})
	}
}

// file counts one file of the product.
func (c *counts) file(name string, data []byte) error {
	n := bytes.Count(data, []byte("\n"))
	c.lines += n
	c.packages[path.Dir(name)] += n
	line := 0
	for l := range bytes.Lines(data) {
		line++
		c.atLeast(long, 140, utf8.RuneCount(bytes.TrimSpace(l)), fmt.Sprintf("%s:%d", name, line))
	}
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, name, data, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	ast.Inspect(f, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			c.function(set, node)
		case *ast.TypeSpec:
			if s, ok := node.Type.(*ast.StructType); ok {
				c.atLeast(structs, 15, names(s.Fields), path.Dir(name)+"."+node.Name.Name)
			}
		}
		return true
	})
	return nil
}

func (c *counts) function(set *token.FileSet, f *ast.FuncDecl) {
	from, to := set.Position(f.Pos()), set.Position(f.End())
	name := fmt.Sprintf("%s:%d %s", from.Filename, from.Line, f.Name.Name)
	c.atLeast(functions, 90, to.Line-from.Line+1, name)
	if f.Recv != nil {
		c.methods[path.Dir(from.Filename)+"."+receiver(f.Recv.List[0].Type)]++
	}
	row := parameters
	if f.Recv == nil && strings.HasPrefix(strings.ToLower(f.Name.Name), "new") {
		row = constructors
	}
	c.atLeast(row, 5, names(f.Type.Params), name)
}

// names counts fields or parameters: an embedded or unnamed one is one.
func names(list *ast.FieldList) int {
	n := 0
	for _, f := range list.List {
		n += max(1, len(f.Names))
	}
	return n
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr: // of a generic type
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return "?"
}

// sums makes the rows that need all files.
func (c *counts) sums() {
	for p, n := range c.packages {
		c.atLeast(large, 1200, n, p)
		if p == "bootagent" || strings.HasPrefix(p, "bootagent/") {
			c.atLeast(below, 0, n, p)
		}
	}
	for t, n := range c.methods {
		c.atLeast(types, 60, n, t)
	}
}

// complexity asks gocognit.
func (c *counts) complexity() error {
	out, err := exec.Command("go", "run", "github.com/uudashr/gocognit/cmd/gocognit@v1.2.0",
		"-test=false", "-ignore", "(^|/)(test|hack)/", "-over", "35", ".").Output()
	if exit := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &exit) || len(out) == 0) { // it exits with 1 where it finds any
		return fmt.Errorf("run gocognit: %w", err)
	}
	for l := range strings.Lines(string(out)) {
		var h hit
		var pkg, name string
		if _, err := fmt.Sscanf(l, "%d %s %s %s", &h.n, &pkg, &name, &h.name); err != nil {
			return fmt.Errorf("read gocognit's line %q: %w", l, err)
		}
		h.name += " " + name
		c.found[cognitive] = append(c.found[cognitive], h)
	}
	return nil
}

func (c *counts) print(list bool) {
	sum := func(name string, n int) { fmt.Printf("%-44s %7d\n", name, n) }
	sum("product lines", c.lines)
	sum("packages", len(c.packages))
	for _, row := range []string{below, types, structs, constructors, parameters, functions, cognitive, large, long} {
		found := c.found[row]
		sum(row, len(found))
		if !list {
			continue
		}
		slices.SortFunc(found, func(a, b hit) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.name, b.name)) })
		for _, h := range found {
			fmt.Printf("  %5d %s\n", h.n, h.name)
		}
	}
	sum("lines of tests", c.testLines)
	sum("words of docs/*.md", c.words)
}
