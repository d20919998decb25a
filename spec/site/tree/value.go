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
	"bytes"
	"iter"
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

// Map returns a copy of the value, in which f changes it and then each that is below it.
func (v *Value) Map(f func(*Value)) *Value {
	if v == nil {
		return nil
	}
	out := *v
	out.Fields, out.List = slices.Clone(v.Fields), slices.Clone(v.List)
	f(&out)
	for i := range out.Fields {
		out.Fields[i].Val = out.Fields[i].Val.Map(f)
	}
	for i := range out.List {
		out.List[i] = out.List[i].Map(f)
	}
	return &out
}

// Sorted returns the value with the keys of its maps in the order of their names.
func (v *Value) Sorted() *Value {
	return v.Map(func(v *Value) {
		slices.SortFunc(v.Fields, func(a, b Field) int { return strings.Compare(a.Key, b.Key) })
	})
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

// MergeOverride lays an override over a base as helm-toolkit does: maps merge
// key by key, everything else replaces, and a map cannot replace a value or a
// list. dropped is called with each such map, and with each list that was to be
// appended to what is not a list. Nothing is copied that is not changed.
func MergeOverride(base, over *Value, dropped func(*Value)) *Value {
	switch {
	case over == nil:
		return base
	case base == nil || base.Kind == Null:
		return over
	case over.Append:
		return join(base, over, dropped)
	case over.Kind != Mapping:
		return over
	case base.Kind != Mapping:
		dropped(over)
		return base
	}
	return mergeFields(base, over, func(b, o *Value) *Value { return MergeOverride(b, o, dropped) })
}

// MergeFiles lays a later file over an earlier one as helm -f does: maps merge,
// everything else replaces, a null takes the key away. lost is called with each
// list that takes the place of another, and with each that was to be appended to
// what is not a list, and so is left out.
func MergeFiles(base, over *Value, lost func(base, over *Value)) *Value {
	if over.Append && base != nil && base.Kind != Null {
		return join(base, over, func(over *Value) { lost(base, over) })
	}
	if base != nil && base.Kind == Sequence && over.Kind == Sequence {
		lost(base, over)
	}
	if base == nil || base.Kind != Mapping || over.Kind != Mapping {
		return over
	}
	out := mergeFields(base, over, func(b, o *Value) *Value { return MergeFiles(b, o, lost) })
	kept := out.Fields[:0:0]
	for _, f := range out.Fields {
		if f.Val.Kind != Null || base.Get(f.Key) == nil {
			kept = append(kept, f)
		}
	}
	out.Fields = kept
	return out
}

// join lays a list after another. The entries stay the values that they were, so
// that each can be told from where it came.
func join(base, over *Value, dropped func(*Value)) *Value {
	if base.Kind != Sequence {
		dropped(over)
		return base
	}
	out := *over
	out.Append = base.Append
	out.List = slices.Concat(base.List, over.List)
	return &out
}

// mergeFields returns a new map with the keys of both, base's first.
func mergeFields(base, over *Value, both func(b, o *Value) *Value) *Value {
	out := &Value{Kind: Mapping, At: over.At, Fields: make([]Field, len(base.Fields), len(base.Fields)+len(over.Fields))}
	copy(out.Fields, base.Fields)
	find := index(base)
	for _, f := range over.Fields {
		if i := find(f.Key); i >= 0 {
			merged := both(base.Fields[i].Val, f.Val)
			if merged != base.Fields[i].Val {
				out.Fields[i] = Field{f.Key, f.At, merged}
			}
			continue
		}
		out.Fields = append(out.Fields, f)
	}
	return out
}

// index returns a look-up of a map's fields, with an index where that pays.
func index(v *Value) func(key string) int {
	if len(v.Fields) > 16 {
		byKey := make(map[string]int, len(v.Fields))
		for i, f := range v.Fields {
			byKey[f.Key] = i
		}
		return func(key string) int {
			if i, ok := byKey[key]; ok {
				return i
			}
			return -1
		}
	}
	return func(key string) int {
		for i := range v.Fields {
			if v.Fields[i].Key == key {
				return i
			}
		}
		return -1
	}
}

// pieceSize is how much of a list is parsed at a time: the library takes some forty times
// as much memory.
const pieceSize = 256 << 10

// Entries parses a file that is one long list, below the key or without it, and gives its
// entries in turn: a tree of all of it would take most of the memory of a large site. False
// where the file is anything else, or short. Faults go to r; as they may be those of a list
// that was taken apart, a caller that meets one reads the whole file with [Parse].
func Entries(src *report.Source, data []byte, key string, r *report.Report) (entries iter.Seq[*Value], ok bool) {
	pieces := split(data, key)
	if len(pieces) < 2 || tooManyValues(data) {
		return nil, false
	}
	return func(yield func(*Value) bool) {
		for _, p := range pieces {
			for _, doc := range parse(src, p.data, p.line, r) {
				for _, e := range doc.List {
					if !yield(e) {
						return
					}
				}
			}
		}
	}, true
}

// piece is entries of a list, and the number of lines before them.
type piece struct {
	data []byte
	line int
}

// split cuts a list at lines that begin an entry. It gives none where anything is written
// that might not mean the same in pieces: another key, a second document, an anchor, a
// text that begins further left than the entries.
func split(data []byte, key string) (pieces []piece) {
	if bytes.ContainsAny(data, "&*\t\r") {
		return nil
	}
	var start []byte // what the line of an entry begins with
	keyed, from, number := false, 0, 0
	for at := 0; at < len(data); number++ {
		end := at + bytes.IndexByte(data[at:], '\n') + 1
		if end == at {
			end = len(data)
		}
		line := bytes.TrimRight(data[at:end], "\n")
		text := bytes.TrimLeft(line, " ")
		switch {
		case len(text) == 0 || text[0] == '#':
		case start == nil && !keyed && string(line) == "---":
		case start == nil && !keyed && isKey(line, key):
			keyed = true
		case start == nil && bytes.HasPrefix(text, []byte("- ")):
			start = line[:len(line)-len(text)+2]
			pieces = append(pieces, piece{line: number})
			from = at
		case start == nil:
			return nil
		case bytes.HasPrefix(line, start):
			if at-from >= pieceSize {
				pieces[len(pieces)-1].data = data[from:at]
				pieces = append(pieces, piece{line: number})
				from = at
			}
		case len(line)-len(text) < len(start)-1:
			return nil
		}
		at = end
	}
	if len(pieces) > 0 {
		pieces[len(pieces)-1].data = data[from:]
	}
	return pieces
}

// isKey reports whether a line has nothing but a key.
func isKey(line []byte, key string) bool {
	rest, is := bytes.CutPrefix(line, []byte(key+":"))
	text := bytes.TrimLeft(rest, " ")
	return is && (len(text) == 0 || text[0] == '#' && len(text) < len(rest))
}
