// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

	"github.com/caisson-os/caisson/spec/site/document"
	"github.com/caisson-os/caisson/spec/site/module"
)

// checkSchema holds the documents of a YAML text to a schema. A text that is not YAML,
// as editors see it, has no error.
func checkSchema(s *jsonschema.Schema, text []byte) error {
	var found error
	for d := yaml.NewDecoder(bytes.NewReader(text)); ; {
		var doc any
		if d.Decode(&doc) != nil { // the end, or keys that stand twice
			return found
		}
		found = errors.Join(found, s.Validate(textual(doc)))
	}
}

// textual makes dates the texts that they are in JSON.
func textual(v any) any {
	switch v := v.(type) {
	case time.Time:
		return v.Format(time.DateOnly)
	case map[string]any:
		for k := range v {
			v[k] = textual(v[k])
		}
	case []any:
		for i := range v {
			v[i] = textual(v[i])
		}
	}
	return v
}

// Every example is valid without a warning, and what it explains and compiles
// to is kept in testdata: a change of meaning shows in review.
func TestExamples(t *testing.T) {
	byName := schemas(t)
	sites, err := filepath.Glob("../../examples/*/site.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(sites) < 4 {
		t.Fatalf("examples: %v", sites)
	}
	for _, file := range sites {
		dir := filepath.Dir(file)
		name := filepath.Base(dir)
		t.Run(name, func(t *testing.T) {
			yamls, err := filepath.Glob(dir + "/*.yaml")
			if err != nil {
				t.Fatal(err)
			}
			for _, file := range yamls {
				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				hint := regexp.MustCompile(`^# yaml-language-server: \$schema=../../docs/schema/(\w+)\.schema\.json\n`).FindSubmatch(text)
				if hint == nil {
					t.Fatalf("%s does not begin with the schema for editors", file)
				}
				if err := checkSchema(byName[string(hint[1])], text); err != nil {
					t.Error(err)
				}
			}
			s, r := ParseAt(time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC), os.DirFS(dir), "site.yaml")
			r.Strict()
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
			if s.HasLayer() {
				vs, err := s.Variants()
				if err != nil {
					t.Fatal(err)
				}
				recipes, err := json.MarshalIndent(vs, "", "  ")
				if err != nil {
					t.Fatal(err)
				}
				golden(t, "examples/"+name+"/layers.json", string(recipes)+"\n")
			}
			for _, n := range s.Nodes() {
				e, err := s.Explain(n.Name, nil)
				if err != nil {
					t.Fatal(err)
				}
				var tree strings.Builder
				e.Write(&tree)
				golden(t, "examples/"+name+"/"+n.Name+".txt", tree.String())
				data, err := s.Compile(n.Name, "sha256:0000", "")
				if err != nil {
					t.Fatal(err)
				}
				var pretty bytes.Buffer
				if err := json.Indent(&pretty, data, "", "  "); err != nil {
					t.Fatal(err)
				}
				golden(t, "examples/"+name+"/"+n.Name+".json", pretty.String()+"\n")
			}
		})
	}
}

// docBlock is a YAML block of a page; a first line "# not a site" opts out.
var docBlock = regexp.MustCompile("(?ms)^```ya?ml\n(.*?)^```$")

// Every YAML block of README and docs is a document, or a part of a Site, that
// the parser and the schema take.
func TestDocs(t *testing.T) {
	byName := schemas(t)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	from, err := filepath.Glob("../../docs/from/*.md")
	if err != nil || len(from) < 7 {
		t.Fatal(from, err)
	}
	checked := 0
	for _, page := range append(append(pages, from...), "../../README.md") {
		text, err := os.ReadFile(page)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range docBlock.FindAllSubmatchIndex(text, -1) {
			block := string(text[m[2]:m[3]])
			line := 1 + bytes.Count(text[:m[2]], []byte("\n"))
			if strings.HasPrefix(block, "# not a site") {
				continue
			}
			checked++
			schema := "site"
			switch {
			case strings.Contains(block, "apiVersion:"):
			case strings.HasPrefix(block, "# values\n"):
				schema = "values"
			case strings.HasPrefix(block, "# armada\n"):
				schema = ""
			default:
				block = head + block
			}
			// What the blocks name besides.
			_, r := Parse(files("page.yaml", block, "nodes.yaml", "nodes: [{name: other}]", "nodes.json", `{"kind": "NodeList", "items": []}`,
				"values.yaml", "conf: {}", "divingbell-values.yaml", "conf: {}"), "page.yaml")
			r.DropNotes()
			for _, p := range r.Problems {
				t.Errorf("%s:%d: %s", filepath.Base(page), line, p)
			}
			if schema != "" {
				if err := checkSchema(byName[schema], []byte(block)); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if checked < 5 {
		t.Errorf("only %d blocks were found: is the pattern right?", checked)
	}
}

// docs/divingbell.md has a row for every key of values files, or docs/kinds.md names it, and
// docs/site.md or docs/site-time.md has one for every other key of a Site.
func TestDocsNameEveryKey(t *testing.T) {
	values, inSite := keys(t, "values"), keys(t, "site")
	if len(values) < 60 || len(inSite) < len(values)+30 {
		t.Fatalf("only %d and %d keys are found", len(values), len(inSite))
	}
	for _, plumbing := range []string{"secrets", "global"} { // of Helm itself
		delete(values, plumbing)
	}
	for _, m := range module.Names() { // named once for all, as daemonset_<module>
		for _, names := range []map[string]bool{values, inSite} {
			delete(names, "daemonset_"+m)
			delete(names, "divingbell_"+m)
		}
	}
	for page, names := range map[string]map[string]bool{"divingbell.md": values, "site.md": inSite} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, further := range map[string][]string{"divingbell.md": {"kinds.md"}, "site.md": {"site-time.md", "rollout.md"}}[page] {
			more, err := os.ReadFile("../../docs/" + further)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, more...)
		}
		for name := range names {
			if page == "site.md" && (values[name] || strings.HasPrefix(name, "+")) {
				continue // a row of the other page, and any list's
			}
			if !regexp.MustCompile(`\b` + regexp.QuoteMeta(name) + `\b`).Match(text) {
				t.Errorf("docs/%s does not name %s", page, name)
			}
		}
	}
}

// keys are all that a schema allows in some map.
func keys(t *testing.T, schema string) map[string]bool {
	t.Helper()
	text, err := document.Schema(schema)
	if err != nil {
		t.Fatal(err)
	}
	var doc any
	if err := json.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	var walk func(v any)
	walk = func(v any) {
		m, _ := v.(map[string]any)
		for key, below := range m {
			if list, ok := below.([]any); ok {
				for _, e := range list {
					walk(e)
				}
			}
			walk(below)
			if p, ok := below.(map[string]any); ok && key == "properties" {
				for name := range p {
					out[name] = true
				}
			}
		}
	}
	walk(doc)
	return out
}
