// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// schema is a document that has a JSON Schema, and those that may stand in the same file.
type schema struct {
	name, title string
	documents   []shape.Document
}

var schemas = makeSchemas()

func makeSchemas() []schema {
	site := schema{"site", "caisson Site", []shape.Document{{Type: reflect.TypeFor[Site]()}}}
	out := []schema{site,
		{"values", "Divingbell values", []shape.Document{{Type: reflect.TypeFor[Values]()}}},
		{"inventory", "caisson inventory", []shape.Document{{Type: reflect.TypeFor[inventory.Doc]()}}}}
	for _, k := range kinds {
		out[0].documents = append(out[0].documents, k.Document)
		out = append(out, schema{strings.ToLower(k.Kind()), "caisson " + k.Kind(), []shape.Document{k.Document}})
	}
	return out
}

// SchemaNames lists the documents that have a JSON Schema.
func SchemaNames() []string {
	var out []string
	for _, s := range schemas {
		out = append(out, s.name)
	}
	return out
}

// Schema returns the JSON Schema (draft 2020-12) of a document, for editors. It
// is generated from the types that files are decoded into. It knows shapes, not
// rules: what it refuses the parser refuses, not the other way round.
func Schema(name string) ([]byte, error) {
	for _, s := range schemas {
		if s.name == name {
			return shape.Schema("https://caisson.dev/schema/"+name+".schema.json", s.title, name == "values", s.documents[0], s.documents[1:]...)
		}
	}
	return nil, fmt.Errorf("no schema is called %q", name)
}
