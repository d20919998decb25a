// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"

	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// SchemaNames are the documents that have a JSON Schema.
var SchemaNames = []string{"site", "values", "inventory"}

// Schema returns the JSON Schema (draft 2020-12) of a document, for editors. It
// is generated from the types that files are decoded into. It knows shapes, not
// rules: what it refuses the parser refuses, not the other way round.
func Schema(name string) ([]byte, error) {
	roots := map[string]struct {
		typ   reflect.Type
		title string
	}{
		"site":      {reflect.TypeFor[Site](), "caisson Site"},
		"values":    {reflect.TypeFor[Values](), "Divingbell values"},
		"inventory": {reflect.TypeFor[inventory.Doc](), "caisson inventory"},
	}
	root, ok := roots[name]
	if !ok {
		return nil, fmt.Errorf("no schema is called %q", name)
	}
	return shape.Schema(root.typ, "https://caisson.dev/schema/"+name+".schema.json", root.title, name == "values")
}
