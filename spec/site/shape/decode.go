// SPDX-License-Identifier: Apache-2.0

package shape

import (
	"reflect"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// decoder is what a type implements that is more than its fields.
type decoder interface {
	Decode(c *Checker, v *tree.Value)
}

// Decode fills into, a pointer to an authored type, from v. Struct fields carry
// the tag site:"name" or site:"name,required"; what has no field is unknown.
// A null is as if it were not written.
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
		if !c.Want(v, tree.Sequence) {
			return
		}
		target.Set(reflect.MakeSlice(target.Type(), len(v.List), len(v.List)))
		for i, e := range v.List {
			c.Push(Nth(i))
			if e.Kind == tree.Null {
				c.Errorf(e.At, "null", "", "an entry must not be empty")
			}
			c.Decode(e, target.Index(i).Addr().Interface())
			c.Pop()
		}
	case reflect.Struct:
		if v.Kind == tree.Mapping {
			c.decodeStruct(v, target)
			return
		}
		c.Errorf(v.At, "type", example(v, structFields(target.Type())), "expected %s, got %s", tree.Mapping, v.Kind)
	default:
		panic("no decoder for " + target.Type().String())
	}
}

// example returns how a value is written where a map belongs that says no more than
// this value: as the one field that must be there.
func example(v *tree.Value, fields []structField) string {
	required := slices.DeleteFunc(slices.Clone(fields), func(f structField) bool { return !f.required })
	if v.Kind != tree.Scalar || len(required) != 1 || len(v.Text) > 40 || strings.ContainsAny(v.Text, "\n{}") {
		return ""
	}
	return "write {" + required[0].name + ": " + v.Text + "}"
}

// Want reports a value that is not of the kind that belongs there.
func (c *Checker) Want(v *tree.Value, k tree.Kind) bool {
	if v.Kind == k {
		return true
	}
	c.Errorf(v.At, "type", "", "expected %s, got %s", k, v.Kind)
	return false
}

func (c *Checker) decodeStruct(v *tree.Value, target reflect.Value) {
	fields := structFields(target.Type())
	if at := target.FieldByName("At"); at.IsValid() {
		at.Set(reflect.ValueOf(v.At))
	}
	given := map[string]bool{}
	for _, f := range v.Fields {
		i := slices.IndexFunc(fields, func(s structField) bool { return s.name == f.Key })
		if i < 0 {
			c.Unknown(f, fieldNames(fields))
			continue
		}
		given[f.Key] = f.Val.Kind != tree.Null
		c.Push(f.Key)
		c.Decode(f.Val, target.FieldByIndex(fields[i].index).Addr().Interface())
		if t, ok := target.FieldByIndex(fields[i].index).Interface().(Text); ok && fields[i].enum != nil && t.Set() && !slices.Contains(fields[i].enum, t.S) {
			c.Errorf(t.At, "enum", report.DidYouMean(t.S, fields[i].enum), "%q is not one of %s", t.S, strings.Join(fields[i].enum, ", "))
		}
		c.Pop()
	}
	for _, f := range fields {
		if f.required && !given[f.name] {
			c.Errorf(v.At, "required", "", "%q is missing", f.name)
		}
	}
}

// Unknown reports a key that means nothing. Divingbell ignores such keys, so in
// its own files they are warnings.
func (c *Checker) Unknown(f tree.Field, known []string) {
	severity := report.Error
	if f.At.Src != nil && f.At.Src.Lenient {
		severity = report.Warning
	}
	c.problem(severity, f.At, "unknown-key", report.DidYouMean(f.Key, known), "unknown key %q", f.Key)
}

// structField is what a tag says of a field.
type structField struct {
	name     string
	index    []int
	typ      reflect.Type
	required bool
	enum     []string
	doc      string
}

func structFields(t reflect.Type) []structField {
	var out []structField
	for i := range t.NumField() {
		if t.Field(i).Anonymous {
			for _, f := range structFields(t.Field(i).Type) {
				f.index = append([]int{i}, f.index...)
				out = append(out, f)
			}
			continue
		}
		name, rest, _ := strings.Cut(t.Field(i).Tag.Get("site"), ",")
		if name == "" {
			continue
		}
		f := structField{name: name, index: []int{i}, typ: t.Field(i).Type, required: rest == "required", doc: t.Field(i).Tag.Get("doc")}
		if e := t.Field(i).Tag.Get("enum"); e != "" {
			f.enum = strings.Split(e, ",")
		}
		out = append(out, f)
	}
	return out
}

func fieldNames(fields []structField) []string {
	out := make([]string, len(fields))
	for i, f := range fields {
		out[i] = f.name
	}
	return out
}
