// SPDX-License-Identifier: Apache-2.0

// Package tree holds YAML as a person wrote it: values that keep their literal text
// and their place. 2000000 is never a float, "on" never a boolean, 0640 never
// 416, and two keys of one map never the same.
//
// [Parse] refuses what no configuration is: alias bombs, deep nesting, too many
// values. [MergeFiles] and [MergeOverride] lay one tree over another as Helm and
// helm-toolkit do, without changing either. The package knows no key of any
// document; package shape decodes trees into types. Only packages below
// spec/site import it. It follows YAML 1.1 as far as go.yaml.in/yaml/v3 does.
package tree

import (
	"slices"
	"strconv"
	"strings"

	"github.com/caisson-os/caisson/spec/site/report"
)

// Value is a YAML value with its place. Scalars keep their literal text: a
// number is never a float, "on" never a boolean, 0640 never 416. Values are
// never changed once made, so that they can be shared.
type Value struct {
	Kind   Kind
	Plain  bool    // a scalar without quotes
	Text   string  // of a scalar
	Fields []Field // of a map, in the author's order, keys unique
	List   []*Value
	Append bool // a list that is laid after the one it meets, instead of in its place
	At     report.Pos
	size   int // nodes below and including this one, aliases counted in full
	height int // levels below this one, through aliases
}

// Field is one key of a map.
type Field struct {
	Key string
	At  report.Pos
	Val *Value
}

// Kind names the type of a value.
type Kind uint8

// The kinds of values.
const (
	Null Kind = iota
	Scalar
	Mapping
	Sequence
)

func (k Kind) String() string { return [...]string{"null", "a value", "a map", "a list"}[k] }

// Get returns the value of a key, or nil.
func (v *Value) Get(key string) *Value {
	if v == nil {
		return nil
	}
	for i := range v.Fields {
		if v.Fields[i].Key == key {
			return v.Fields[i].Val
		}
	}
	return nil
}

// Without returns a map that lacks a key.
func (v *Value) Without(key string) *Value {
	if v.Get(key) == nil {
		return v
	}
	out := *v
	out.Fields = slices.DeleteFunc(slices.Clone(v.Fields), func(f Field) bool { return f.Key == key })
	return &out
}

// With returns a map with another value for a key.
func (v *Value) With(key string, val *Value) *Value {
	out := *v
	out.Fields = slices.Clone(v.Fields)
	for i := range out.Fields {
		if out.Fields[i].Key == key {
			out.Fields[i].Val = val
			return &out
		}
	}
	out.Fields = append(out.Fields, Field{key, val.At, val})
	return &out
}

// Sorted returns the value with the keys of its maps in the order of their names.
func (v *Value) Sorted() *Value {
	if v == nil {
		return nil
	}
	out := *v
	out.Fields, out.List = slices.Clone(v.Fields), slices.Clone(v.List)
	slices.SortFunc(out.Fields, func(a, b Field) int { return strings.Compare(a.Key, b.Key) })
	for i := range out.Fields {
		out.Fields[i].Val = out.Fields[i].Val.Sorted()
	}
	for i := range out.List {
		out.List[i] = out.List[i].Sorted()
	}
	return &out
}

// AppendText appends a text that equal values have in common, and others not.
func (v *Value) AppendText(b []byte) []byte {
	if v == nil {
		return b
	}
	b = append(b, '0'+byte(v.Kind))
	b = strconv.AppendQuote(b, v.Text)
	b = strconv.AppendInt(b, int64(len(v.Fields)+len(v.List)), 10)
	if v.Append {
		b = append(b, '+')
	}
	for _, f := range v.Fields {
		b = f.Val.AppendText(strconv.AppendQuote(b, f.Key))
	}
	for _, e := range v.List {
		b = e.AppendText(b)
	}
	return b
}
