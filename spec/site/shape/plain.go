// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// readers are the types that read plain fields, by the kind of the field or by the form that
// its tag names.
var readers = map[string]reflect.Type{"string": reflect.TypeFor[Text](), "bool": reflect.TypeFor[Flag](),
	"int": reflect.TypeFor[Number](), "int64": reflect.TypeFor[Number](),
	"block": reflect.TypeFor[Block](), "words": reflect.TypeFor[Words](), "duration": reflect.TypeFor[Duration](),
	"pause": reflect.TypeFor[Pause]()}

// written returns the type that reads a field of a type: the type itself where it is not plain.
func written(t reflect.Type, form string) reflect.Type {
	if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.String && form != "words" {
		return reflect.SliceOf(written(t.Elem(), form))
	}
	if reader := readers[cmp.Or(form, t.Kind().String())]; reader != nil {
		return reader
	}
	return t
}

// set gives a plain field what was read for it of v: of a [Duration] its seconds, of an empty
// list nil.
func (c *Checker) set(field, read reflect.Value, v *tree.Value) {
	if read.Kind() == reflect.Slice {
		for i := range read.Len() {
			field.Set(reflect.Append(field, reflect.Zero(field.Type().Elem())))
			c.set(field.Index(i), read.Index(i), v.List[i])
		}
		return
	}
	if read.FieldByName("At").IsZero() {
		c.unset = append(c.unset, v.At)
	}
	for read.Type().Field(0).Anonymous {
		read = read.Field(0)
	}
	if d, ok := read.Interface().(Duration); ok {
		read = reflect.ValueOf(Number{N: int64(d.D / time.Second)})
	}
	field.Set(read.Field(0).Convert(field.Type()))
}

// At returns where the value of a key of v was written, or of a key of that, and so on; the
// zero place where nothing was, or nothing that could be read.
func (c *Checker) At(v *tree.Value, keys ...string) report.Pos {
	for _, key := range keys {
		v = v.Get(key)
	}
	if v == nil || v.Kind == tree.Null || slices.Contains(c.unset, v.At) {
		return report.Pos{}
	}
	return v.At
}

// Has reports whether there is such a place.
func (c *Checker) Has(v *tree.Value, keys ...string) bool { return c.At(v, keys...) != (report.Pos{}) }

// Nth returns where a text of a list was written, which may be a word of one text.
func (c *Checker) Nth(v *tree.Value, i int) report.Pos {
	if v.Kind == tree.Sequence {
		v = v.List[i]
	}
	return c.At(v)
}

// ValidIn is [Checker.ValidFields] for a value that was decoded from v. What is wrong with a
// list is reported at its first entry.
func (c *Checker) ValidIn(at report.Pos, v *tree.Value, err error) bool {
	places := map[string]report.Pos{}
	for _, e := range rules.All(err) {
		if place := v.Get(e.Field); e.Field != "" && place != nil {
			places[e.Field] = c.At(append(place.List, place)[0])
		}
	}
	return c.ValidFields(at, places, err)
}

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
			c.Unknown(f, plain.Each(fields, func(s Field) string { return s.Name }))
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
