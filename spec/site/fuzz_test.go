// SPDX-License-Identifier: Apache-2.0

package site

import (
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/caisson-os/caisson/spec"
)

// FuzzParse: whatever is read, nothing panics; what is valid compiles for every
// node to bytes that a node takes, and can be explained.
func FuzzParse(f *testing.F) {
	examples, err := filepath.Glob("../../examples/*/*.yaml")
	if err != nil || len(examples) == 0 {
		f.Fatal("no examples", err)
	}
	for _, name := range examples {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	for _, r := range ruleRows(f) {
		f.Add(r.text + head)
	}
	f.Add(`{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "a"}}]}`)
	f.Add("a: &a {b: *a}\n<<: [*a, *a]\n? [x]\n: y\n--- !t\n...\n")
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 {
			t.Skip()
		}
		s, r := ParseAt(time.Unix(1795000000, 0), files("site.yaml", text), "site.yaml")
		r.Write(io.Discard)
		if (s == nil) != (r.Err() != nil) {
			t.Fatalf("site %v, error %v", s != nil, r.Err())
		}
		if s == nil {
			return
		}
		names := []string{"no-node-has-this-name"}
		for _, n := range s.Nodes() {
			names = append(names, n.Name)
			data, err := s.Compile(n.Name, "", "")
			if unlocked := s.services.Publishable(s.services.Of(n)); unlocked != nil { // there is no lock beside the text
				if err == nil {
					t.Fatalf("compiled though %v", unlocked)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			var o spec.Overlay
			if err := spec.Decode(data, &o); err != nil {
				t.Fatalf("%v\n%s", err, data)
			}
		}
		for _, name := range names {
			e, err := s.Explain(name, nil)
			if err != nil {
				t.Fatal(err)
			}
			e.Write(io.Discard)
		}
		if s.HasLayer() {
			if _, err := s.Variants(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
