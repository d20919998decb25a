// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// TestEachProblemHasAPlace takes each key of each document of the rules away, and its value: what is said of
// the rest says where.
func TestEachProblemHasAPlace(t *testing.T) {
	t.Parallel()
	tried, said := 0, map[string]bool{}
	for _, r := range ruleRows(t) {
		var docs []*yaml.Node
		in := yaml.NewDecoder(strings.NewReader(r.text + head))
		for {
			var doc yaml.Node
			err := in.Decode(&doc)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					docs = nil // it is a row about YAML
				}
				break
			}
			docs = append(docs, &doc)
		}
		try := func() {
			tried++
			var text bytes.Buffer
			out := yaml.NewEncoder(&text)
			for _, doc := range docs {
				if err := out.Encode(doc); err != nil {
					t.Fatal(err)
				}
			}
			_, found := Parse(files("site.yaml", text.String()), "site.yaml")
			for _, p := range found.Problems {
				if p.Line == 0 && !said[p.Rule+p.Message] {
					said[p.Rule+p.Message] = true
					t.Errorf("%s, in\n%s", p, text.String())
				}
			}
		}
		var walk func(*yaml.Node)
		walk = func(n *yaml.Node) {
			if n.Kind == yaml.MappingNode {
				whole := n.Content
				for i := 0; i+1 < len(whole); i += 2 {
					n.Content = append(append([]*yaml.Node{}, whole[:i]...), whole[i+2:]...)
					try()
					n.Content = whole
					for _, other := range []string{"null", `""`} {
						var v yaml.Node
						if err := yaml.Unmarshal([]byte(other), &v); err != nil {
							t.Fatal(err)
						}
						was := whole[i+1]
						whole[i+1] = v.Content[0]
						try()
						whole[i+1] = was
					}
				}
			}
			for _, c := range n.Content {
				walk(c)
			}
		}
		for _, doc := range docs {
			walk(doc)
		}
	}
	if tried < 1000 {
		t.Errorf("%d documents are tried", tried)
	}
}
