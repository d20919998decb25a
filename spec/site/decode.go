// SPDX-License-Identifier: Apache-2.0

package site

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec/site/report"
	"github.com/caisson-os/caisson/spec/site/tree"
)

// checker decodes values into the authored types and collects what is wrong.
// The path of fields it stands in is for people who read the report.
type checker struct {
	report *report.Report
	path   []string
}

func (c *checker) push(name string) { c.path = append(c.path, name) }
func nth(i int) string              { return "[" + strconv.Itoa(i) + "]" }

func (c *checker) pop() { c.path = c.path[:len(c.path)-1] }

func (c *checker) in(name string, f func()) {
	c.push(name)
	f()
	c.pop()
}

func (c *checker) problem(severity string, at report.Pos, rule, hint, format string, args ...any) {
	c.report.Add(report.Problem{At: at, Path: joinPath(c.path), Severity: severity, Rule: rule, Hint: hint, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) errorf(at report.Pos, rule, hint, format string, args ...any) {
	c.problem(report.Error, at, rule, hint, format, args...)
}

func (c *checker) warnf(at report.Pos, rule, hint, format string, args ...any) {
	c.problem(report.Warning, at, rule, hint, format, args...)
}

func (c *checker) notef(at report.Pos, rule, hint, format string, args ...any) {
	c.problem(report.Note, at, rule, hint, format, args...)
}

func (c *checker) within(names []string, f func()) {
	n := len(c.path)
	c.path = append(c.path, names...)
	f()
	c.path = c.path[:n]
}

// joinPath writes conf.sysctl["vm.swappiness"], users[2].
func joinPath(path []string) string {
	var b strings.Builder
	for i, p := range path {
		switch {
		case strings.HasPrefix(p, "["):
			b.WriteString(p)
		case strings.ContainsAny(p, ". []\"/"):
			fmt.Fprintf(&b, "[%q]", p)
		default:
			if i > 0 {
				b.WriteByte('.')
			}
			b.WriteString(p)
		}
	}
	return b.String()
}

// decoder is what a type implements that is more than its fields.
type decoder interface {
	decode(c *checker, v *tree.Value)
}

// decode fills into, a pointer to an authored type, from v. Struct fields carry
// the tag site:"name" or site:"name,required"; what has no field is unknown.
// A null is as if it were not written.
func (c *checker) decode(v *tree.Value, into any) {
	if v == nil || v.Kind == tree.Null {
		return
	}
	if d, ok := into.(decoder); ok {
		d.decode(c, v)
		return
	}
	target := reflect.ValueOf(into).Elem()
	switch target.Kind() {
	case reflect.Pointer:
		target.Set(reflect.New(target.Type().Elem()))
		c.decode(v, target.Interface())
	case reflect.Slice:
		if !c.want(v, tree.Sequence) {
			return
		}
		target.Set(reflect.MakeSlice(target.Type(), len(v.List), len(v.List)))
		for i, e := range v.List {
			c.push(nth(i))
			if e.Kind == tree.Null {
				c.errorf(e.At, "null", "", "an entry must not be empty")
			}
			c.decode(e, target.Index(i).Addr().Interface())
			c.pop()
		}
	case reflect.Struct:
		if c.want(v, tree.Mapping) {
			c.decodeStruct(v, target)
		}
	default:
		panic("no decoder for " + target.Type().String())
	}
}

func (c *checker) want(v *tree.Value, k tree.Kind) bool {
	if v.Kind == k {
		return true
	}
	c.errorf(v.At, "type", "", "%s belongs here, not %s", k, v.Kind)
	return false
}

func (c *checker) decodeStruct(v *tree.Value, target reflect.Value) {
	fields := structFields(target.Type())
	if at := target.FieldByName("At"); at.IsValid() {
		at.Set(reflect.ValueOf(v.At))
	}
	given := map[string]bool{}
	for _, f := range v.Fields {
		i := slices.IndexFunc(fields, func(s structField) bool { return s.name == f.Key })
		if i < 0 {
			c.unknown(f, fieldNames(fields))
			continue
		}
		given[f.Key] = f.Val.Kind != tree.Null
		c.push(f.Key)
		c.decode(f.Val, target.FieldByIndex(fields[i].index).Addr().Interface())
		if t, ok := target.FieldByIndex(fields[i].index).Interface().(Text); ok && fields[i].enum != nil && t.Set() && !slices.Contains(fields[i].enum, t.S) {
			c.errorf(t.At, "enum", report.DidYouMean(t.S, fields[i].enum), "%q is none of %s", t.S, strings.Join(fields[i].enum, ", "))
		}
		c.pop()
	}
	for _, f := range fields {
		if f.required && !given[f.name] {
			c.errorf(v.At, "required", "", "%q is missing", f.name)
		}
	}
}

// unknown reports a key that means nothing. Divingbell ignores such keys, so in
// its own files they are warnings.
func (c *checker) unknown(f tree.Field, known []string) {
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

// rename returns a map with its keys in another spelling.
func (c *checker) rename(v *tree.Value, to func(string) string) *tree.Value {
	if v.Kind != tree.Mapping {
		return v
	}
	out := *v
	out.Fields = make([]tree.Field, 0, len(v.Fields))
	first := make(map[string]tree.Field, len(v.Fields))
	for _, f := range v.Fields {
		key := to(f.Key)
		if old, dup := first[key]; dup {
			c.errorf(f.At, "duplicate-key", "keep one of the two", "%q is the same as %q at %s", f.Key, old.Key, old.At)
			continue
		}
		first[key] = f
		out.Fields = append(out.Fields, tree.Field{Key: key, At: f.At, Val: f.Val})
	}
	return &out
}
