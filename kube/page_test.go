// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/kube/kubetest"
)

var (
	yamlBlock = regexp.MustCompile("(?s)```yaml\n(.*?)```")
	testName  = regexp.MustCompile(`\bTest[A-Z]\w+`)
	testFunc  = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// TestPagesNameTests: a test that docs/kubernetes.md, docs/kubernetes-nodes.md or
// docs/security.md says holds a promise is there.
func TestPagesNameTests(t *testing.T) {
	there := map[string]bool{}
	err := filepath.WalkDir("..", func(name string, e fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, "_test.go") {
			return err
		}
		text, err := os.ReadFile(name)
		for _, m := range testFunc.FindAllStringSubmatch(string(text), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"kubernetes.md", "kubernetes-nodes.md", "security.md"} {
		text, err := os.ReadFile(filepath.Join("..", "docs", page))
		if err != nil {
			t.Fatal(err)
		}
		named := testName.FindAllString(string(text), -1)
		for _, name := range named {
			if !there[name] {
				t.Errorf("%s names %s, which is not there", page, name)
			}
		}
		if len(named) < 7 {
			t.Errorf("%s names %d tests", page, len(named))
		}
	}
}

// TestPageApplies: the documents of docs/kubernetes.md are taken as they stand.
func TestPageApplies(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "docs", "kubernetes.md"))
	if err != nil {
		t.Fatal(err)
	}
	c := kubetest.Start(t)
	c.Namespace(t, "metal-a")
	blocks := yamlBlock.FindAllStringSubmatch(string(text), -1)
	for _, b := range blocks {
		if strings.Contains(b[1], "attach.yaml") { // values of a chart: TestAttachPage renders it
			continue
		}
		if !strings.Contains(b[1], "kind:") { // a part of a Site
			if out, err := c.Kubectl(t, siteHead+b[1], "apply", "--server-side", "--dry-run=server", "--namespace", "metal-a", "-f", "-"); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			continue
		}
		if out, err := c.Kubectl(t, b[1], "apply", "--server-side", "--namespace", "metal-a", "-f", "-"); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if out, err := c.Kubectl(t, blocks[0][1], "diff", "--server-side", "--namespace", "metal-a", "-f", "-"); err != nil {
		t.Errorf("kubectl diff of what was applied: %v\n%s", err, out)
	}
	out, err := c.Kubectl(t, "", "get", "caisson", "--namespace", "metal-a", "-o", "name")
	if err != nil || strings.Count(out, "\n") != 5 {
		t.Errorf("%v\n%s", err, out)
	}
}
