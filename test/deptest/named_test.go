// SPDX-License-Identifier: Apache-2.0

package deptest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestNamedTestsExist: a test that a page of docs names as what holds a promise is
// there, and so is each file of the attack corpus.
func TestNamedTestsExist(t *testing.T) {
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(root))
	there := map[string]bool{}
	function := regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(`)
	err = filepath.WalkDir(dir, func(name string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		data, err := os.ReadFile(name)
		for _, m := range function.FindAllStringSubmatch(string(data), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(text), -1) {
			if named++; !there[name] {
				t.Errorf("%s names %s, which no package has", filepath.Base(page), name)
			}
		}
		for _, name := range regexp.MustCompile(`test/attack/\w+\.yaml`).FindAllString(string(text), -1) {
			if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
				t.Errorf("%s: %v", filepath.Base(page), err)
			}
		}
	}
	if named < 20 {
		t.Errorf("%d tests are named, more belong there", named)
	}
}
