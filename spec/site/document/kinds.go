// SPDX-License-Identifier: Apache-2.0

package document

import (
	"reflect"

	"github.com/caisson-os/caisson/spec/site/maintenance"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/spec/site/shape"
	"github.com/caisson-os/caisson/spec/site/tree"
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
	now(func(r *Reader) *[]maintenance.RolloutDoc { return &r.Maintenance.Rollouts }),
	now(func(r *Reader) *[]service.ServiceDoc { return &r.Services }),
}

var siteKind = shape.Kind[Site]()

// now is a kind that is decoded when its document is found.
func now[T any](list func(*Reader) *[]T) kind { return collect[T](list) }

// later is a kind that its package decodes when it knows all documents.
func later[T any](list func(*Reader) *[]shape.Raw[T]) kind { return collect[T](list) }

func collect[Doc, T any](list func(*Reader) *[]T) kind {
	return kind{shape.Document{Type: reflect.TypeFor[Doc](), Whole: true}, func(r *Reader, v *tree.Value) {
		var doc T
		r.Decode(v, &doc)
		*list(r) = append(*list(r), doc)
	}}
}
