// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/spec/site/shape"
)

// schemas are the documents that have a JSON Schema, and those that may stand in the
// same file.
var schemas = []struct {
	name, title string
	documents   []shape.Document
}{
	{"site", "caisson Site", append([]shape.Document{{Kind: "Site", Type: reflect.TypeFor[Site]()}}, parts...)},
	{"values", "Divingbell values", []shape.Document{{Type: reflect.TypeFor[Values]()}}},
	{"inventory", "caisson inventory", []shape.Document{{Type: reflect.TypeFor[inventory.Doc]()}}},
	{"maintenancewindow", "caisson MaintenanceWindow", maintenance.Kinds[:1]},
	{"nodeset", "caisson NodeSet", maintenance.Kinds[1:2]},
	{"nodemaintenance", "caisson NodeMaintenance", maintenance.Kinds[2:3]},
	{"operationtemplate", "caisson OperationTemplate", maintenance.Kinds[3:4]},
	{"nodeservice", "caisson NodeService", []shape.Document{service.Kind}},
	{"rollout", "caisson Rollout", maintenance.Kinds[4:5]},
}

// parts are the documents that may stand beside a Site.
var parts = append(slices.Clone(maintenance.Kinds), service.Kind)

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
