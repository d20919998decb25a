// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"cmp"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/rules"
	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// decoder is implemented by a type that is more than its fields.
type decoder interface {
	Decode(c *Checker, v *tree.Value)
}

// Read returns what [Checker.Decode] fills from v.
func Read[T any](c *Checker, v *tree.Value) (doc T) {
	c.Decode(v, &doc)
	return doc
}

// Decode fills into, a pointer to an authored type, from v. Struct fields carry
// the tag site:"name" or site:"name,required"; what has no field is unknown. A field
// with a tag doc, or a site tag without a name, has the name of its json tag. A field
// At gets the place of the struct, a field V the value itself. A null is as if it were
// not written.
func (c *Checker) Decode(v *tree.Value, into any) {
	if v == nil || v.Kind == tree.Null {
		return
	}
	if d, ok := into.(decoder); ok {
		d.Decode(c, v)
		return
	}
	target := reflect.ValueOf(into).Elem()
	switch target.Kind() {
	case reflect.Pointer:
		target.Set(reflect.New(target.Type().Elem()))
		c.Decode(v, target.Interface())
	case reflect.Slice:
		if !c.want(v, tree.Sequence, instead(v, target.Type())) {
			return
		}
		target.Set(reflect.MakeSlice(target.Type(), len(v.List), len(v.List)))
		defer func(as string) { c.as = as }(c.as)
		c.as = ""
		for i, e := range v.List {
			c.Push(Nth(i))
			c.Refuse(e.Kind == tree.Null, e.At, "null", "", "an entry must not be empty")
			c.Decode(e, target.Index(i).Addr().Interface())
			c.Pop()
		}
	case reflect.Struct:
		if v.Kind == tree.Mapping {
			c.decodeStruct(v, target)
			return
		}
		c.want(v, tree.Mapping, instead(v, target.Type()))
	default:
		panic("no decoder for " + target.Type().String())
	}
}

// Want reports a value that is not of the kind that belongs there.
func (c *Checker) Want(v *tree.Value, k tree.Kind) bool { return c.want(v, k, "") }

// want is Want with a hint, in whose place the example of the field may stand.
func (c *Checker) want(v *tree.Value, k tree.Kind, hint string) bool {
	if v.Kind == k {
		return true
	}
	if c.as != "" && (hint == "" || strings.Contains(v.Text, " ")) { // who can tell where such a text is taken apart?
		hint = "as in " + c.as
	}
	c.unset = append(c.unset, v.At)
	c.Errorf(v.At, "type", hint, "expected %s, got %s", k, v.Kind)
	return false
}

func (c *Checker) decodeStruct(v *tree.Value, target reflect.Value) {
	fields := structFields(target.Type())
	if at := target.FieldByName("At"); at.IsValid() {
		at.Set(reflect.ValueOf(v.At))
	}
	if written := target.FieldByName("V"); written.IsValid() {
		written.Set(reflect.ValueOf(v))
	}
	if c.foreign(v, target.Type(), fields) {
		return
	}
	given := map[string]bool{}
	defer func(as string) { c.as = as }(c.as)
	for _, f := range v.Fields {
		i := slices.IndexFunc(fields, func(s Field) bool { return s.Name == f.Key })
		if i < 0 {
			c.unknown(f, fields)
			continue
		}
		given[f.Key] = f.Val.Kind != tree.Null
		c.Push(f.Key)
		c.as = fields[i].as
		into := target.FieldByIndex(fields[i].index)
		read, plain := into, into.Type() != fields[i].Type
		if plain {
			read = reflect.New(fields[i].Type).Elem()
		}
		c.Decode(f.Val, read.Addr().Interface())
		if t, ok := read.Interface().(Text); ok && fields[i].enum != nil && t.Set() && !slices.Contains(fields[i].enum, t.S) {
			c.Errorf(t.At, "enum", report.DidYouMean(t.S, fields[i].enum), "%q is not one of %s", t.S, strings.Join(fields[i].enum, ", "))
		}
		if plain && given[f.Key] {
			c.set(into, read, f.Val)
		}
		c.Pop()
	}
	for _, f := range fields {
		if f.required && !given[f.Name] {
			hint := ""
			if f.as != "" {
				hint = "as in " + f.Name + ": " + f.as
			}
			c.Errorf(v.At, "required", hint, "%q is missing", f.Name)
		}
	}
}

// foreign reports a map that has none of the fields, where the type knows what is meant.
func (c *Checker) foreign(v *tree.Value, t reflect.Type, fields []Field) bool {
	e, ok := reflect.New(t).Interface().(exampler)
	if !ok || len(v.Fields) == 0 || v.At.Src != nil && v.At.Src.Lenient {
		return false
	}
	for _, f := range v.Fields {
		if slices.ContainsFunc(fields, func(s Field) bool {
			return s.Name == f.Key || plain.Nearest(f.Key, slices.Values([]string{s.Name})) != ""
		}) {
			return false
		}
	}
	example := e.Example(v)
	if example == "" {
		return false
	}
	c.Errorf(v.Fields[0].At, "unknown-key", "write "+example, "unknown key %q", v.Fields[0].Key)
	return true
}

// unknown is Unknown for a struct: a key of one of its fields has a place.
func (c *Checker) unknown(f tree.Field, fields []Field) {
	names := fieldNames(fields)
	if plain.Nearest(f.Key, slices.Values(names)) == "" {
		for _, s := range fields {
			t := s.Type
			if t.Kind() == reflect.Pointer {
				t = t.Elem()
			}
			if t.Kind() == reflect.Struct && slices.Contains(fieldNames(structFields(t)), f.Key) {
				c.UnknownBelow(f, s.Name)
				return
			}
		}
	}
	c.Unknown(f, names)
}

// Unknown reports a key that means nothing. Divingbell ignores such keys, so in
// its own files they are warnings.
func (c *Checker) Unknown(f tree.Field, known []string) {
	c.unknownKey(f, report.DidYouMean(f.Key, known))
}

// UnknownBelow is Unknown for a key that has its place below another.
func (c *Checker) UnknownBelow(f tree.Field, name string) { c.unknownKey(f, "put it below "+name) }

func (c *Checker) unknownKey(f tree.Field, hint string) {
	severity := report.Error
	if f.At.Src != nil && f.At.Src.Lenient {
		severity = report.Warning
	}
	c.problem(report.Problem{Severity: severity, At: f.At, Rule: "unknown-key", Hint: hint, Message: "unknown key " + strconv.Quote(f.Key)})
}

// Field is one key of a map: a struct's field, by its tag, or an entry of a table.
type Field struct {
	Name string
	Type reflect.Type // authored type
	Doc  string

	index    []int // of a struct's
	required bool
	enum     []string
	as       string // an example of its value
}

// structFields returns the fields of a type, which are not to be changed.
func structFields(t reflect.Type) []Field {
	if known, ok := fieldsOf.Load(t); ok {
		return known.([]Field)
	}
	out := readFields(t)
	fieldsOf.Store(t, out)
	return out
}

// fieldsOf has the fields of each type that was asked for: tags are read once.
var fieldsOf sync.Map

func readFields(t reflect.Type) []Field {
	var out []Field
	for i := range t.NumField() {
		if t.Field(i).Anonymous {
			for _, f := range structFields(t.Field(i).Type) {
				if !slices.Contains(fieldNames(out), f.Name) { // else the outer struct has its own
					f.index = append([]int{i}, f.index...)
					out = append(out, f)
				}
			}
			continue
		}
		tag := t.Field(i).Tag
		name, rest, options := strings.Cut(tag.Get("site"), ",")
		if name == "" && (options || tag.Get("doc") != "") {
			name, _, _ = strings.Cut(tag.Get("json"), ",")
		}
		if name == "" {
			continue
		}
		form, required := strings.CutPrefix(rest, "required")
		f := Field{Name: name, index: []int{i}, Type: written(t.Field(i).Type, strings.TrimPrefix(form, ",")),
			required: required, Doc: tag.Get("doc"), as: tag.Get("as")}
		if e := tag.Get("enum"); e != "" {
			f.enum = strings.Split(e, ",")
		}
		out = append(out, f)
	}
	return out
}

func fieldNames(fields []Field) []string {
	return plain.Each(fields, func(f Field) string { return f.Name })
}

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
	return cmp.Or(readers[cmp.Or(form, t.Kind().String())], t)
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

// DecodeFields returns the values of a map, each a pointer to its field's type;
// what has no field is unknown. A key that is not written, or is null, has no value.
func (c *Checker) DecodeFields(v *tree.Value, fields []Field) map[string]any {
	out := map[string]any{}
	if v == nil || v.Kind == tree.Null || !c.Want(v, tree.Mapping) {
		return out
	}
	for _, f := range v.Fields {
		i := slices.IndexFunc(fields, func(s Field) bool { return s.Name == f.Key })
		if i < 0 {
			c.Unknown(f, fieldNames(fields))
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
