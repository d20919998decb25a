// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// embedding are the structs of the agent that embed one of another package of it, which has all
// its methods reach into what is not theirs. It may only shrink.
var embedding = map[string]string{
	"bootagent/record/journal.living bootagent/items/item/Entry": "an entry is a value without methods",
	"bootagent/fetch.request bootagent/record/track/Way":         "a way is a value, which the process reads flat",
}

// TestNoStructEmbedsAnothers: a part of the agent takes what it needs, as arguments or as
// interfaces of its own.
func TestNoStructEmbedsAnothers(t *testing.T) {
	structs := map[string][]*ast.File{} // by folder
	set := token.NewFileSet()
	err := filepath.WalkDir("../../bootagent", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(set, name, nil, 0)
		dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(name)), "../../")
		structs[dir] = append(structs[dir], file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	met := map[string]bool{}
	for dir, files := range structs {
		for _, file := range files {
			for name, typ := range structsOf(file) {
				for _, f := range typ.Fields.List {
					other := embedded(file, f)
					at, what := path.Split(other)
					if other == "" || !isStruct(structs[strings.TrimSuffix(at, "/")], what) {
						continue
					}
					if key := dir + "." + name + " " + other; embedding[key] == "" {
						t.Errorf("%s: %s.%s embeds %s: take what it needs of it", set.Position(f.Pos()), dir, name, other)
					} else {
						met[key] = true
					}
				}
			}
		}
	}
	for key := range embedding {
		if !met[key] {
			t.Errorf("%s does so no more: take its row out", key)
		}
	}
	if n := len(structs["bootagent/node/cycle"]); n == 0 {
		t.Error("no files were read")
	}
}

// structsOf returns the structs that a file declares.
func structsOf(file *ast.File) map[string]*ast.StructType {
	all := map[string]*ast.StructType{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.TypeSpec); ok {
			if typ, ok := s.Type.(*ast.StructType); ok {
				all[s.Name.Name] = typ
			}
		}
		return true
	})
	return all
}

func isStruct(files []*ast.File, name string) bool {
	for _, f := range files {
		if structsOf(f)[name] != nil {
			return true
		}
	}
	return false
}

// embedded returns the folder and the name of the type of this module that a field embeds, ""
// where it embeds none of another package.
func embedded(file *ast.File, f *ast.Field) string {
	typ := f.Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	s, ok := typ.(*ast.SelectorExpr)
	if !ok || len(f.Names) > 0 {
		return ""
	}
	for _, i := range file.Imports {
		name, err := strconv.Unquote(i.Path.Value)
		if own, ok := strings.CutPrefix(name, Module+"/"); err == nil && ok && path.Base(own) == s.X.(*ast.Ident).Name {
			return path.Join(own, s.Sel.Name)
		}
	}
	return ""
}
