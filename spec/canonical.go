// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
)

// ErrNotCanonical is returned by [Decode] for bytes that mean something but are
// not the one encoding that [Encode] gives: a duplicate, unknown or differently
// cased key, white space, another order, trailing data.
var ErrNotCanonical = errors.New("not the canonical encoding")

// Encode returns the only valid encoding of a document: compact JSON, fields in
// the order of the type, map keys sorted, nothing escaped that need not be.
func Encode(doc any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(doc); err != nil {
		return nil, fmt.Errorf("encode %T: %w", doc, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Decode reads data into doc and refuses whatever [Encode] would not have
// written. Comparing with a second encoding is stricter than any list of rules:
// what two parsers could read differently cannot pass. The caller caps the size.
func Decode(data []byte, doc any) error {
	if err := json.Unmarshal(data, doc); err != nil {
		return fmt.Errorf("decode %T: %w", doc, err)
	}
	again, err := Encode(doc)
	if err != nil {
		return err
	}
	if !bytes.Equal(data, again) {
		return fmt.Errorf("decode %T: %w", doc, whyNot(data, again, doc))
	}
	return nil
}

// whyNot says why data is not the one encoding of doc: a key that is unknown has a name.
func whyNot(data, again []byte, doc any) error {
	unknown, err := DecodeKnown(data, reflect.New(reflect.TypeOf(doc).Elem()).Interface())
	if err == nil && unknown != nil {
		return unknownKeys(unknown)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(reflect.New(reflect.TypeOf(doc).Elem()).Interface()); err != nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrNotCanonical, firstDifference(data, again))
}

func firstDifference(got, want []byte) string {
	n := 0
	for n < len(got) && n < len(want) && got[n] == want[n] {
		n++
	}
	show := func(b []byte) string {
		return fmt.Sprintf("%.24q", b[n:min(n+24, len(b))])
	}
	return fmt.Sprintf("at byte %d: %s where %s belongs", n, show(got), show(want))
}

// DecodeFile reads a file that caisson keeps beside a site: JSON of one kind, spaced and ordered
// as it may be after an author merged it. It is written again, and what its writer does not know
// would be lost, so a key of a later release is refused, at any depth; so is one that stands
// twice, or in another case. The caller caps the size.
func DecodeFile(data []byte, kind string, doc any) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return err
	}
	switch {
	case head.APIVersion == "" && head.Kind == "":
		return fmt.Errorf("it is not a %s of %s", kind, APIVersion)
	case head.APIVersion != APIVersion || head.Kind != kind:
		return fmt.Errorf("it is a %.40q of %.40q, not a %s of %s", head.Kind, head.APIVersion, kind, APIVersion)
	}
	f := filter{noted: map[string]bool{}}
	if err := f.check(json.NewDecoder(bytes.NewReader(data)), reflect.TypeOf(doc), ""); err != nil {
		return err
	}
	if f.unknown != nil {
		return unknownKeys(f.unknown)
	}
	return json.Unmarshal(data, doc)
}

// check reads one value, whose type is t, and notes the keys that it has no field for.
func (f *filter) check(d *json.Decoder, t reflect.Type, path string) error {
	token, err := d.Token()
	open, nested := token.(json.Delim)
	if err != nil || !nested {
		return err
	}
	t = keyed(t)
	var of field
	if open == '[' {
		path += "[]"
		if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			of.typ = t.Elem()
		}
	}
	for seen := map[string]bool{}; d.More(); {
		at := path
		if open == '{' {
			key, err := d.Token()
			if err != nil {
				return err
			}
			at = strings.TrimPrefix(path+"."+key.(string), ".") // the decoder lets nothing else stand here
			known := false
			if of, known, err = member(t, seen, key.(string), at); err != nil {
				return err
			}
			if !known {
				f.note(at)
			}
		}
		if err := f.check(d, of.typ, at); err != nil {
			return err
		}
	}
	_, err = d.Token()
	return err
}

// unknownKeys are keys of a document that this release does not know.
type unknownKeys []string

func (k unknownKeys) Error() string { return fmt.Sprintf("it has %q of a later release", []string(k)) }

// Hint says how to mend it.
func (unknownKeys) Hint() string { return "use the release that wrote it, or a later one" }

// OfLaterRelease reports whether a document was refused for keys of a later release.
func OfLaterRelease(err error) bool {
	var keys unknownKeys
	return errors.As(err, &keys)
}

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
