// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestThePageHasEachType: docs/formats/artifacts.md names each media type that is spelled, and
// each repository.
func TestThePageHasEachType(t *testing.T) {
	page, err := os.ReadFile("../docs/formats/artifacts.md")
	if err != nil {
		t.Fatal(err)
	}
	count := 0
	for _, name := range []string{"descriptor.go", "../internal/mediatype/mediatype.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			v, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			for _, value := range v.Values {
				lit, ok := value.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING {
					continue
				}
				text, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				if strings.HasPrefix(v.Names[0].Name, "Repo") {
					text = "`" + text + ":"
				} else if !strings.Contains(text, "vnd.caisson") && !strings.Contains(text, "sigstore") {
					continue
				}
				count++
				if !strings.Contains(string(page), text) && !strings.Contains(string(page), strings.TrimSuffix(text, ":")+"`") {
					t.Errorf("the page lacks %s", text)
				}
			}
			return true
		})
	}
	if count < 25 {
		t.Errorf("%d types and repositories are counted", count)
	}
}
