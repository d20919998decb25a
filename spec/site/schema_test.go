// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/caisson-os/caisson/spec/site/document"
)

const schemaDir = "../../docs/schema"

// schemas compiles the published files, and holds them to the types.
func schemas(t *testing.T) map[string]*jsonschema.Schema {
	t.Helper()
	out := map[string]*jsonschema.Schema{}
	for _, name := range document.SchemaNames() {
		want, err := document.Schema(name)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(schemaDir, name+".schema.json")
		if os.Getenv("CAISSON_UPDATE") != "" {
			if err := os.MkdirAll(schemaDir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what the types say; run: CAISSON_UPDATE=1 go test ./spec/site", file)
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(got))
		if err != nil {
			t.Fatal(err)
		}
		c := jsonschema.NewCompiler()
		if err := c.AddResource(name, doc); err != nil {
			t.Fatal(err)
		}
		if out[name], err = c.Compile(name); err != nil {
			t.Fatal(err)
		}
	}
	return out
}

// The schema and the parser are held to one corpus: what the schema refuses the
// parser refuses, and what the parser refuses for its shape the schema refuses.
func TestSchemaAgreesWithParser(t *testing.T) {
	site := schemas(t)["site"]
	shape := regexp.MustCompile(` error (unknown-key|type|enum|required): `)
	// Shapes that JSON Schema cannot see: text that is a list of words, enums and
	// required fields of conf that an override or another file may complete.
	invisible := map[string]bool{"ethtool value": true, "limits bad": true, "limits negative": true, "limits plus": true, "mount type bind": true, "mount type none": true, "mount type auto": true, "exec empty script": true, "files content": true, "limits missing": true, "limits empty": true, "mount empty": true, "mount type": true,
		"exec rerun": true, "exec blocking": true, "perm policy": true, "profile empty": true, "override wrong value": true,
		"interface": true, "vlan": true, "boot network bad": true, "repository": true, "units limits": true, "nics names": true}
	refused := 0
	for _, tt := range ruleRows(t) {
		t.Run(tt.name, func(t *testing.T) {
			schemaErr := checkSchema(site, []byte(tt.text+head))
			_, report := Parse(files("site.yaml", tt.text+head), "site.yaml")
			if schemaErr != nil && report.Err() == nil {
				t.Errorf("only the schema refuses it: %v", schemaErr)
			}
			if schemaErr != nil {
				refused++
			}
			if schemaErr == nil && !invisible[tt.name] && shape.MatchString(tt.want) {
				t.Errorf("only the parser refuses the shape: %v", report.Err())
			}
		})
	}
	if refused < 15 {
		t.Errorf("the schema refuses only %d of the corpus", refused)
	}
}
