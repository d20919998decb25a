// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"gopkg.in/yaml.v3"
)

// checkSchema holds a YAML text to a schema.
func checkSchema(t *testing.T, s *jsonschema.Schema, text []byte) {
	t.Helper()
	var doc any
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(doc); err != nil {
		t.Error(err)
	}
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
				checkSchema(t, byName[string(hint[1])], text)
			}
			s, r := Parse(os.DirFS(dir), "site.yaml")
			r.Strict()
			if err := r.Err(); err != nil {
				t.Fatal(err)
			}
			vs, err := s.Variants()
			if err != nil {
				t.Fatal(err)
			}
			recipes, err := json.MarshalIndent(vs, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, "examples/"+name+"/layers.json", string(recipes)+"\n")
			for _, n := range s.Nodes() {
				e, err := s.Explain(n.Name, nil)
				if err != nil {
					t.Fatal(err)
				}
				var tree strings.Builder
				e.Write(&tree)
				golden(t, "examples/"+name+"/"+n.Name+".txt", tree.String())
				data, err := s.Compile(n.Name, "sha256:0000")
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
	checked := 0
	for _, page := range append(pages, "../../README.md") {
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
				checkSchema(t, byName[schema], []byte(block))
			}
		}
	}
	if checked < 5 {
		t.Errorf("only %d blocks were found: is the pattern right?", checked)
	}
}

// docs/divingbell.md has a row for every key of conf and manifests, and
// docs/site.md one for every key of a Site.
func TestDocsNameEveryKey(t *testing.T) {
	for page, roots := range map[string][]reflect.Type{
		"divingbell.md": {reflect.TypeFor[modulesDoc](), reflect.TypeFor[appArmorDoc](), reflect.TypeFor[aptDoc](), reflect.TypeFor[packageDoc](),
			reflect.TypeFor[debconfDoc](), reflect.TypeFor[repositoryDoc](), reflect.TypeFor[execDoc](), reflect.TypeFor[limitDoc](), reflect.TypeFor[mountDoc](),
			reflect.TypeFor[permDoc](), reflect.TypeFor[permPathDoc](), reflect.TypeFor[uamliteDoc](), reflect.TypeFor[userDoc](), reflect.TypeFor[valuesDoc]()},
		"site.md": {reflect.TypeFor[document](), reflect.TypeFor[layerDoc](), reflect.TypeFor[debianDoc](), reflect.TypeFor[kernelDoc](), reflect.TypeFor[machineDoc](),
			reflect.TypeFor[networkDoc](), reflect.TypeFor[interfaceDoc](), reflect.TypeFor[trustDoc](), reflect.TypeFor[keysDoc](), reflect.TypeFor[matchDoc]()},
	} {
		text, err := os.ReadFile("../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		for _, root := range roots {
			for _, f := range structFields(root) {
				if f.name == "secrets" || f.name == "global" {
					continue // plumbing of Helm itself
				}
				if !regexp.MustCompile(`\b` + regexp.QuoteMeta(f.name) + `\b`).Match(text) {
					t.Errorf("docs/%s does not name %s of %s", page, f.name, root.Name())
				}
			}
		}
	}
}
