// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// mutating are the functions that change what a name leads to, or that open one for it, by
// package. What is called by a descriptor alone is not among them.
var mutating = map[string][]string{
	"os": {"Chmod", "Chown", "Chtimes", "Create", "CreateTemp", "Lchown", "Link", "Mkdir", "MkdirAll", "MkdirTemp", "OpenFile", "Remove", "RemoveAll",
		"Rename", "Symlink", "Truncate", "WriteFile", "CopyFS"},
	"unix": {"Chmod", "Chown", "Creat", "Fchmodat", "Fchownat", "Futimesat", "Lchown", "Link", "Linkat", "Lremovexattr", "Lsetxattr",
		"Mkdir", "Mkdirat", "Mkfifo", "Mkfifoat", "Mknod", "Mknodat", "Mount", "MountSetattr", "MoveMount", "OpenTree", "PivotRoot", "Removexattr", "Rename",
		"Renameat", "Renameat2", "Rmdir", "Setxattr", "Symlink", "Symlinkat", "Truncate", "Unlink", "Unlinkat", "Unmount", "Utime", "Utimes", "UtimesNano", "UtimesNanoAt"},
	"durable": {"Fill", "MkdirAll", "Remove", "Rename", "Write", "WriteFile"},
}

// calls returns the mutating functions that each function below a directory of the module
// names, called or handed on.
func calls(t *testing.T, dir string) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(filepath.Join("../..", dir), func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		at := strings.TrimPrefix(filepath.Dir(name), "../../")
		for _, d := range file.Decls {
			of := at + " (package)"
			if f, ok := d.(*ast.FuncDecl); ok {
				of = at + " " + f.Name.Name
				if f.Recv != nil {
					of = at + " " + strings.TrimPrefix(fmt.Sprint(receiver(f.Recv.List[0].Type)), "*") + "." + f.Name.Name
				}
			}
			ast.Inspect(d, func(n ast.Node) bool {
				if name := opensToWrite(n); name != "" {
					found[of] = append(found[of], name)
				}
				s, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if x, ok := s.X.(*ast.Ident); ok && slices.Contains(mutating[strings.Replace(x.Name, "syscall", "unix", 1)], s.Sel.Name) {
					found[of] = append(found[of], x.Name+"."+s.Sel.Name)
				}
				return true
			})
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for of, list := range found {
		slices.Sort(list)
		found[of] = slices.Compact(list)
	}
	return found
}

// opensToWrite returns the name of a call of open(2) and its like that can make a file or
// write to one, "" for every other node.
func opensToWrite(n ast.Node) string {
	c, ok := n.(*ast.CallExpr)
	if !ok {
		return ""
	}
	s, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains([]string{"Open", "Openat", "Openat2"}, s.Sel.Name) {
		return ""
	}
	x, ok := s.X.(*ast.Ident)
	if !ok || x.Name != "unix" && x.Name != "syscall" {
		return ""
	}
	writes := false
	for _, arg := range c.Args {
		ast.Inspect(arg, func(n ast.Node) bool {
			if f, ok := n.(*ast.SelectorExpr); ok {
				writes = writes || slices.Contains([]string{"O_CREAT", "O_WRONLY", "O_RDWR", "O_TRUNC"}, f.Sel.Name)
			}
			return true
		})
	}
	if !writes {
		return ""
	}
	return x.Name + "." + s.Sel.Name
}

func receiver(e ast.Expr) string {
	switch x := e.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return "?"
}

// TestDescriptors holds docs/descriptors.md, in which somebody has judged each place where
// the agent changes something by a name: a new one fails until it has a row.
func TestDescriptors(t *testing.T) {
	text, err := os.ReadFile("../../docs/descriptors.md")
	if err != nil {
		t.Fatal(err)
	}
	rows, columns := map[string][]string{}, 5 // function, calls, descriptor or path, owner, reason
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "## Below /etc") {
			columns = 3 // from there on by path, where root is the owner: function, calls, place or reason
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		if len(cells) != columns || slices.ContainsFunc(cells, func(c string) bool { return strings.TrimSpace(c) == "" }) {
			t.Errorf("a row needs %d cells, none of them empty: %.120s", columns, line)
			continue
		}
		words := func(cell string) (out []string) {
			for n, part := range strings.Split(cell, "`") {
				if n%2 == 1 {
					out = append(out, part)
				}
			}
			return out
		}
		in := ""
		for _, of := range words(cells[0]) {
			if dir, name, whole := strings.Cut(of, " "); whole {
				in, of = dir, name
			}
			if of = in + " " + of; rows[of] != nil {
				t.Errorf("%s has two rows", of)
			}
			rows[of] = words(cells[1])
		}
	}
	all := calls(t, "bootagent")
	for _, dir := range []string{"cmd/caisson-agent", "internal/safepath"} {
		maps.Copy(all, calls(t, dir))
	}
	for _, of := range slices.Sorted(maps.Keys(all)) {
		row, judged := rows[of]
		if !judged {
			t.Errorf("%s has no row: who may own the directory in which it calls %s?", of, strings.Join(all[of], ", "))
			continue
		}
		for _, call := range all[of] {
			if !slices.Contains(row, call) {
				t.Errorf("the row of %s does not know %s", of, call)
			}
		}
	}
	for of := range rows {
		if all[of] == nil {
			t.Errorf("%s has a row, and calls nothing of the kind", of)
		}
	}
	used := map[string]bool{}
	for of, list := range all {
		for _, call := range list {
			used[of+call] = true
		}
	}
	for of, list := range rows {
		for _, call := range list {
			any := false
			for other, its := range rows { // the functions of a row share its calls
				any = any || slices.Equal(its, list) && used[other+call]
			}
			if !any {
				t.Errorf("%s has a row for %s, which it does not call", of, call)
			}
		}
	}
}
