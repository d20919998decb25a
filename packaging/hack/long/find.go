// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// times has a line for each test: its package, its name, and the seconds that it takes on
// two cores that do nothing else, with "~" before them where they were never measured so.
//
//go:embed times.txt
var times string

const (
	unknown   = 5 * time.Minute  // what a test counts for that has no row
	perTarget = 18 * time.Second // of a fuzz target: 30 s beside another one, and its compiling
)

// fuzz stands in the place of a test's name for all fuzz targets of a module.
const fuzz = "fuzz"

// test is a test that takes minutes.
type test struct {
	dir, name string // the package's directory, from the top of the repository, and the function
	takes     time.Duration
	estimated bool
}

func (t test) String() string { return t.dir + " " + t.name }

func (t test) time() string {
	s := strconv.Itoa(int(t.takes.Seconds()))
	if t.estimated {
		return "~" + s
	}
	return s
}

// known reads the table of times.
func known() (map[string]test, error) {
	rows := map[string]test{}
	for i, line := range strings.Split(times, "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		var t test
		var seconds string
		if _, err := fmt.Sscan(line, &t.dir, &t.name, &seconds); err != nil {
			return nil, fmt.Errorf("times.txt:%d: %w", i+1, err)
		}
		number, estimated := strings.CutPrefix(seconds, "~")
		s, err := strconv.ParseUint(number, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("times.txt:%d: %w", i+1, err)
		}
		if t.takes, t.estimated = time.Duration(s)*time.Second, estimated; rows[t.String()] != (test{}) {
			return nil, fmt.Errorf("times.txt:%d: %s stands twice", i+1, t)
		}
		rows[t.String()] = t
	}
	return rows, nil
}

// find returns the long tests of a module, and one for its fuzz targets.
func find(module string) ([]test, error) {
	rows, err := known()
	if err != nil {
		return nil, err
	}
	var all []test
	targets := 0
	err = filepath.WalkDir(module, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != module:
			_, err := os.Stat(filepath.Join(path, "go.mod"))
			if err == nil || d.Name() == "testdata" || strings.HasPrefix(d.Name(), ".") {
				return fs.SkipDir
			}
		case strings.HasSuffix(path, "_test.go"):
			names, fuzzed, err := inFile(path)
			targets += fuzzed
			for _, name := range names {
				t := test{"./" + filepath.ToSlash(filepath.Dir(path)), name, unknown, true}
				if row, ok := rows[t.String()]; ok {
					t = row
				}
				all = append(all, t)
			}
			return err
		}
		return nil
	})
	if targets > 0 {
		all = append(all, test{"./packaging/hack", fuzz, time.Duration(targets) * perTarget, true})
	}
	return all, err
}

// inFile returns the names of a file's long tests, and how many fuzz targets it has.
func inFile(path string) (long []string, targets int, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, 0, err
	}
	targets = bytes.Count(text, []byte("\nfunc Fuzz"))
	if !bytes.Contains(text, []byte("require.Long(")) {
		return nil, targets, nil
	}
	file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
	if err != nil {
		return nil, 0, err
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || !marked(f) {
			continue
		}
		if name := f.Name.Name; !strings.HasPrefix(name, "Test") {
			return nil, 0, fmt.Errorf("%s: %s has require.Long, which is for the beginning of a test", path, name)
		}
		long = append(long, f.Name.Name)
	}
	return long, targets, nil
}

// marked reports whether a function calls require.Long.
func marked(f *ast.FuncDecl) (is bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok && s.Sel.Name == "Long" {
			x, ok := s.X.(*ast.Ident)
			is = is || ok && x.Name == "require"
		}
		return true
	})
	return is
}
