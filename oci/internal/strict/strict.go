// SPDX-License-Identifier: Apache-2.0

// Package strict reads JSON that others wrote, in the one way that leaves no
// room for two opinions.
//
// encoding/json takes the last of two equal keys, matches "Layers" to "layers",
// mends broken UTF-8 and lets a caller overlook what follows. Each of these lets
// a signer and a verifier, or a scanner and a node, read different things from
// the same bytes. Here they are errors. Documents that only caisson writes go
// through spec.Decode, which is stricter still; this package is for manifests
// and bundles. Only oci and oci/sign import it.
package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"
)

// maxDepth is how deep values nest. Manifests need 4, statements 6.
const maxDepth = 16

// Decode reads one JSON value into v. Unknown keys are ignored.
func Decode(data []byte, v any) error { return decode(data, v, false) }

// DecodeKnown is Decode for documents that must not hold unknown keys.
func DecodeKnown(data []byte, v any) error { return decode(data, v, true) }

func decode(data []byte, v any, known bool) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	w := walker{json.NewDecoder(bytes.NewReader(data)), known}
	w.UseNumber()
	if err := w.value(reflect.TypeOf(v), 0); err != nil {
		return err
	}
	if _, err := w.Token(); err != io.EOF {
		return errors.New("something follows the document")
	}
	return json.Unmarshal(data, v)
}

type walker struct {
	*json.Decoder
	known bool
}

// value reads one value and compares its keys with those of t, which may be nil.
func (w walker) value(t reflect.Type, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested more than %d deep", maxDepth)
	}
	tok, err := w.Token()
	if err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return err
	}
	switch tok {
	case json.Delim('{'):
		return w.object(plain(t), depth)
	case json.Delim('['):
		var elem reflect.Type
		if t = plain(t); t != nil && t.Kind() == reflect.Slice {
			elem = t.Elem()
		}
		for w.More() {
			if err := w.value(elem, depth+1); err != nil {
				return err
			}
		}
		_, err := w.Token()
		return err
	}
	return nil
}

func (w walker) object(t reflect.Type, depth int) error {
	fields := fieldsOf(t)
	seen := map[string]bool{}
	for w.More() {
		tok, err := w.Token()
		if err != nil {
			return err
		}
		key := tok.(string) // the decoder lets nothing else stand here
		if seen[key] {
			return fmt.Errorf("key %q stands twice", key)
		}
		seen[key] = true
		var field reflect.Type
		switch {
		case t != nil && t.Kind() == reflect.Map:
			field = t.Elem()
		case fields != nil:
			f, err := find(fields, key)
			if err != nil {
				return err
			}
			if f == nil && w.known {
				return fmt.Errorf("unknown key %q", key)
			}
			if f != nil {
				field = f.Type
			}
		}
		if err := w.value(field, depth+1); err != nil {
			return err
		}
	}
	_, err := w.Token()
	return err
}

// plain follows pointers. It gives nil for types that have no keys to compare.
func plain(t reflect.Type) reflect.Type {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() == reflect.Interface || t == reflect.TypeFor[json.RawMessage]() {
		return nil
	}
	return t
}

// fieldsOf lists the fields of a struct, which embeds none.
func fieldsOf(t reflect.Type) []reflect.StructField {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	return reflect.VisibleFields(t)
}

// find returns the field of a key, nil for a key that is no field's, and an error
// for one that encoding/json would take for a field's.
func find(fields []reflect.StructField, key string) (*reflect.StructField, error) {
	for i, f := range fields {
		switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
		case name == key:
			return &fields[i], nil
		case strings.EqualFold(name, key):
			return nil, fmt.Errorf("key %q is not %q", key, name)
		}
	}
	return nil, nil
}
