// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/explain"
	"github.com/caisson-os/caisson/spec/site/report"

	"go.yaml.in/yaml/v3"
)

// Compile takes a short way to what spec.Encode gives.
func TestCompileIsEncode(t *testing.T) {
	for _, text := range []string{base, choice} {
		s := mustParse(t, text)
		for range 2 { // the second time from what was kept
			for _, n := range s.Nodes() {
				o, err := s.Overlay(n.Name, "sha256:x")
				if err != nil {
					t.Fatal(err)
				}
				want, err := spec.Encode(o)
				if err != nil {
					t.Fatal(err)
				}
				got, err := s.Compile(n.Name, "sha256:x", "")
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					t.Errorf("%s:\n got %s\nwant %s", n.Name, got, want)
				}
				digest, err := s.Digest(n.Name, "sha256:x", "")
				if want := fmt.Sprintf("sha256:%x", sha256.Sum256(want)); err != nil || digest != want {
					t.Errorf("%s: digest %s, %v; want %s", n.Name, digest, err, want)
				}
				var again spec.Overlay
				if err := spec.Decode(got, &again); err != nil {
					t.Errorf("%s: %v", n.Name, err)
				}
			}
		}
	}
}

// shuffle puts the keys of every map below n in another order.
func shuffle(n *yaml.Node, r *rand.Rand) {
	for _, c := range n.Content {
		shuffle(c, r)
	}
	if n.Kind == yaml.MappingNode {
		r.Shuffle(len(n.Content)/2, func(i, j int) {
			n.Content[2*i], n.Content[2*j] = n.Content[2*j], n.Content[2*i]
			n.Content[2*i+1], n.Content[2*j+1] = n.Content[2*j+1], n.Content[2*i+1]
		})
	}
}

// The same meaning has the same bytes, in whatever order keys are written.
func TestCompileIsDeterministic(t *testing.T) {
	text := strings.Replace(base, "  exec:\n", "  exec:\n    more: {rerun_policy: never, data: \"#!/bin/sh\\n\", env: {B: '1', A: '2', C: '3'}}\n", 1)
	r := rand.New(rand.NewPCG(5, 6))
	want := map[string]string{}
	for i := range 30 {
		var doc yaml.Node
		if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			shuffle(&doc, r)
		}
		data, err := yaml.Marshal(&doc)
		if err != nil {
			t.Fatal(err)
		}
		s := mustParse(t, string(data))
		for _, n := range s.Nodes() {
			got, err := s.Compile(n.Name, "", "")
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				want[n.Name] = string(got)
			}
			if string(got) != want[n.Name] {
				t.Fatalf("%s:\n got %s\nwant %s", n.Name, got, want[n.Name])
			}
		}
		vs, err := s.Variants()
		if err != nil {
			t.Fatal(err)
		}
		if id := RecipeID(vs[0].Recipe); i == 0 {
			want["recipe"] = id
		} else if id != want["recipe"] {
			t.Fatalf("recipe %s, want %s", id, want["recipe"])
		}
	}
}

// explain shows the compiled values: its conf, read as a values file,
// compiles to the very same items.
func TestExplainIsCompile(t *testing.T) {
	texts := map[string]string{"base": base, "choice": choice}
	for _, name := range []string{"quickstart", "divingbell", "rack", "diskless"} {
		data, err := os.ReadFile("../../examples/" + name + "/site.yaml")
		if err != nil {
			t.Fatal(err)
		}
		texts[name] = string(data)
	}
	for name, text := range texts {
		dir := "../../examples/" + name
		s, r := parseExample(name, text, dir)
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		for _, n := range s.Nodes() {
			e, err := s.Explain(n.Name, nil)
			if err != nil {
				t.Fatal(err)
			}
			data, err := json.Marshal(map[string]any{"conf": e.Conf})
			if err != nil {
				t.Fatal(err)
			}
			again, r := Parse(files("conf.yaml", string(data), "nodes.yaml", "nodes: [{name: "+n.Name+"}]"), "conf.yaml", "nodes.yaml")
			if r.Err() != nil {
				t.Fatalf("%s %s: %v", name, n.Name, r.Err())
			}
			want, err := s.Overlay(n.Name, "")
			if err != nil {
				t.Fatal(err)
			}
			got, err := again.Overlay(n.Name, "")
			if err != nil {
				t.Fatal(err)
			}
			if s.HasLayer() { // baked paths are in the layer there
				got.Items.Perm, want.Items.Perm = nil, nil
			}
			a, _ := spec.Encode(got.Items)
			b, _ := spec.Encode(want.Items)
			if !bytes.Equal(a, b) {
				t.Errorf("%s %s:\nexplained %s\n compiled %s", name, n.Name, a, b)
			}
			for pointer := range e.Origins {
				if !strings.HasPrefix(pointer, "/machine") && e.Defaults[pointer] == nil && lookUp(e, pointer) == nil {
					t.Errorf("%s %s: an origin for %s, which is not there", name, n.Name, pointer)
				}
			}
		}
	}
}

// parseExample reads an example where it lies, or a text of a test.
func parseExample(name, text, dir string) (*Site, *report.Report) {
	if _, err := os.Stat(dir); err == nil {
		return Parse(os.DirFS(dir), "site.yaml")
	}
	return Parse(files("site.yaml", text), "site.yaml")
}

// lookUp finds what a JSON pointer names; a null counts as there.
func lookUp(e *explain.Explanation, pointer string) any {
	var at any = map[string]any{"conf": e.Conf, "machine": e.Machine}
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	for _, p := range strings.Split(pointer, "/")[1:] {
		switch v := at.(type) {
		case map[string]any:
			child, ok := v[unescape.Replace(p)]
			if !ok {
				return nil
			}
			at = child
		case []any:
			i, err := strconv.Atoi(p)
			if err != nil || i >= len(v) {
				return nil
			}
			at = v[i]
		}
	}
	if at == nil {
		return "null"
	}
	return at
}
