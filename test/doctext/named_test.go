// SPDX-License-Identifier: Apache-2.0

package doctext

import (
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
