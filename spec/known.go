// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// DecodeKnown is [Decode] for a document that another release may have written: keys
// that doc has no field for are left out, at any depth, and their paths returned, as in
// "network.interfaces[].wifi". What is left must be the one encoding of doc, as for
// Decode. Keys that stand twice, or differ from a field's only in case, are errors.
//
// Leaving out is safe only for what the reader may do without, so documents name the
// rest in a needs list, which the caller compares with [Missing]. Who writes a document
// again after reading it loses what was left out: such a reader uses Decode.
func DecodeKnown(data []byte, doc any) (unknown []string, err error) {
	if err := json.Unmarshal(data, doc); err != nil {
		return nil, fmt.Errorf("decode %T: %w", doc, err)
	}
	again, err := Encode(doc)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(data, again) {
		return nil, nil
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, data); err != nil {
		return nil, err
	}
	if !bytes.Equal(compact.Bytes(), data) {
		return nil, fmt.Errorf("decode %T: %w: %s", doc, ErrNotCanonical, firstDifference(data, compact.Bytes()))
	}
	f := filter{noted: map[string]bool{}}
	known, err := f.value(nil, data, reflect.TypeOf(doc), "")
	if err != nil {
		return nil, fmt.Errorf("decode %T: %w", doc, err)
	}
	if !bytes.Equal(known, again) {
		return nil, fmt.Errorf("decode %T: %w: %s", doc, ErrNotCanonical, firstDifference(known, again))
	}
	return f.unknown, nil
}

// LeftOut is the line that says what [DecodeKnown] has left out.
func LeftOut(unknown []string) string {
	return "left out: " + strings.Join(unknown, ", ") + " (of a later release)"
}

// filter copies a compact JSON document without the keys that a type has no field for.
type filter struct {
	unknown []string
	noted   map[string]bool
}

// value appends one value, whose type is t, to out.
func (f *filter) value(out []byte, raw json.RawMessage, t reflect.Type, path string) ([]byte, error) {
	t = keyed(t)
	switch {
	case t == nil:
		return append(out, raw...), nil
	case raw[0] == '{' && (t.Kind() == reflect.Struct || t.Kind() == reflect.Map):
		return f.object(out, raw, t, path)
	case raw[0] == '[' && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array):
		return f.list(out, raw, t.Elem(), path)
	}
	return append(out, raw...), nil
}

func (f *filter) list(out []byte, raw json.RawMessage, elem reflect.Type, path string) ([]byte, error) {
	if keyed(elem) == nil {
		return append(out, raw...), nil
	}
	var values []json.RawMessage
	if err := json.Unmarshal(raw, &values); err != nil {
		return nil, err
	}
	out = append(out, '[')
	for i, v := range values {
		if i > 0 {
			out = append(out, ',')
		}
		var err error
		if out, err = f.value(out, v, elem, path+"[]"); err != nil {
			return nil, err
		}
	}
	return append(out, ']'), nil
}

// object copies the members that a struct has, or all of them where t is a map.
func (f *filter) object(out []byte, raw json.RawMessage, t reflect.Type, path string) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	out = append(out, '{')
	empty, seen := true, map[string]bool{}
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return nil, err
		}
		key := tok.(string) // the decoder lets nothing else stand here
		text, err := Encode(key)
		if err != nil || !bytes.HasSuffix(raw[:d.InputOffset()], text) {
			return nil, fmt.Errorf("%w: key %.40q is escaped", ErrNotCanonical, key)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		at := strings.TrimPrefix(path+"."+key, ".")
		of, known, err := member(t, seen, key, at)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotCanonical, err)
		}
		if !known {
			f.note(at)
			continue
		}
		start := len(out)
		if !empty {
			out = append(out, ',')
		}
		out = append(append(out, text...), ':')
		from := len(out)
		if out, err = f.value(out, value, of.typ, at); err != nil {
			return nil, err
		}
		if of.omitsZero && string(out[from:]) == "{}" && string(value) != "{}" {
			out = out[:start] // nothing of it is known, and a zero value is not written
			continue
		}
		empty = false
	}
	return append(out, '}'), nil
}

// member returns the field of a type for a key of an object, and whether there is one: all keys of
// a map are known, and below a nil type, which may hold anything. seen are those before it.
func member(t reflect.Type, seen map[string]bool, key, at string) (of field, known bool, err error) {
	name, isStruct := key, t != nil && t.Kind() == reflect.Struct
	if isStruct {
		name = strings.ToLower(key)
	}
	if seen[name] {
		return of, false, fmt.Errorf("key %q is given twice", at)
	}
	seen[name] = true
	if !isStruct {
		if t != nil && t.Kind() == reflect.Map {
			of.typ = t.Elem()
		}
		return of, true, nil
	}
	if !plainKey(key) {
		return of, false, fmt.Errorf("unknown key %.40q", key)
	}
	if of, known = fieldsOf(t)[name]; known && of.name != key {
		return of, false, fmt.Errorf("key %q in another case", at)
	}
	return of, known, nil
}

// note keeps the path of an unknown key once: a list has it in each of its elements.
func (f *filter) note(path string) {
	if !f.noted[path] {
		f.noted[path] = true
		f.unknown = append(f.unknown, path)
	}
}

// field describes a struct's field for a key.
type field struct {
	name      string
	typ       reflect.Type
	omitsZero bool // of a struct: left out when it is empty
}

// fieldsByType has what fieldsOf collected: a document has thousands of objects of one type.
var fieldsByType sync.Map // map[string]field by reflect.Type

// fieldsOf collects the fields of a struct, and of those that it embeds, by the
// lower-case form of their keys.
func fieldsOf(t reflect.Type) map[string]field {
	if known, ok := fieldsByType.Load(t); ok {
		return known.(map[string]field)
	}
	fields := map[string]field{}
	for f := range visible(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		name = cmp.Or(name, f.Name)
		fields[strings.ToLower(name)] = field{name, f.Type, f.Type.Kind() == reflect.Struct && strings.Contains(options, "omitzero")}
	}
	fieldsByType.Store(t, fields)
	return fields
}

// visible yields the fields of a struct that stand in its JSON.
func visible(t reflect.Type) func(yield func(reflect.StructField) bool) {
	return func(yield func(reflect.StructField) bool) {
		for _, f := range reflect.VisibleFields(t) {
			if !f.Anonymous && f.IsExported() && !yield(f) {
				return
			}
		}
	}
}

var unmarshaler = reflect.TypeFor[json.Unmarshaler]()

// keyed follows pointers to a type that may hold keys: nil for one that reads its JSON
// by itself, and for what is neither object nor list.
func keyed(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || reflect.PointerTo(t).Implements(unmarshaler) {
		return nil
	}
	switch t.Kind() {
	case reflect.Struct, reflect.Map:
		return t
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() != reflect.Uint8 {
			return t
		}
	}
	return nil
}

// plainKey reports whether a key needs no escape.
func plainKey(key string) bool {
	return key != "" && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}
