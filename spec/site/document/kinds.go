// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/inventory"
	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
	"github.com/caisson-os/caisson/spec/site/waves"
)

// kind is a kind of document that may stand beside a Site.
type kind struct {
	shape.Document
	add func(*Reader, *tree.Value) // reads one
}

// kinds are the documents that may stand beside a Site, each with where the reader
// collects it. What a kind is called its type says; what it means its package checks.
var kinds = []kind{
	now(func(r *Reader) *[]maintenance.WindowDoc { return &r.Maintenance.Windows }),
	now(func(r *Reader) *[]maintenance.NodeSetDoc { return &r.Maintenance.Sets }),
	later(func(r *Reader) *[]shape.Raw[maintenance.NodeMaintenanceDoc] { return &r.Maintenance.Nodes }),
	later(func(r *Reader) *[]shape.Raw[maintenance.TemplateDoc] { return &r.Maintenance.Templates }),
	now(func(r *Reader) *[]waves.RolloutDoc { return &r.Rollouts }),
	now(func(r *Reader) *[]service.ServiceDoc { return &r.Services }),
}

var siteKind = shape.Kind[Site]()

// now is a kind that is decoded when its document is found.
func now[T any](list func(*Reader) *[]T) kind { return collect[T](list) }

// later is a kind that its package decodes when it knows all documents.
func later[T any](list func(*Reader) *[]shape.Raw[T]) kind { return collect[T](list) }

func collect[Doc, T any](list func(*Reader) *[]T) kind {
	return kind{shape.Document{Type: reflect.TypeFor[Doc](), Whole: true}, func(r *Reader, v *tree.Value) {
		*list(r) = append(*list(r), shape.Read[T](r.Checker, v))
	}}
}

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
	return plain.Each(schemas, func(s schema) string { return s.name })
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
