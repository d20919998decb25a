// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"reflect"
	"slices"

	"github.com/caisson-os/caisson/spec/site/tree"
)

// Field is one key of a map whose keys come from a table instead of a struct.
type Field struct {
	Name string
	Type reflect.Type // authored type, as a struct's field would have it
	Doc  string
}

// DecodeFields returns the values of a map, each a pointer to its field's type;
// what has no field is unknown. A key that
// is not written, or is null, has no value.
func (c *Checker) DecodeFields(v *tree.Value, fields []Field) map[string]any {
	out := map[string]any{}
	if v == nil || v.Kind == tree.Null || !c.Want(v, tree.Mapping) {
		return out
	}
	for _, f := range v.Fields {
		i := slices.IndexFunc(fields, func(s Field) bool { return s.Name == f.Key })
		if i < 0 {
			var known []string
			for _, s := range fields {
				known = append(known, s.Name)
			}
			c.Unknown(f, known)
			continue
		}
		if f.Val.Kind == tree.Null {
			continue
		}
		into := reflect.New(fields[i].Type).Interface()
		c.In(f.Key, func() { c.Decode(f.Val, into) })
		out[f.Key] = into
	}
	return out
}

// Fields returns the schema of a map with these keys, under a name of its own.
func (g *Generator) Fields(name string, fields []Field) any {
	if _, ok := g.defs[name]; ok {
		return map[string]any{"$ref": "#/$defs/" + name}
	}
	g.defs[name] = nil // it may contain itself
	properties := map[string]any{}
	for _, f := range fields {
		s := g.OrNull(g.Of(f.Type, false))
		if f.Doc != "" {
			s = withDoc(s, f.Doc)
		}
		properties[f.Name] = s
		g.alsoAppended(properties, f.Name)
	}
	out := map[string]any{"type": "object", "properties": properties}
	if !g.values {
		out["additionalProperties"] = false
	}
	return g.define(name, out)
}
