// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// DecodeKnown is [Decode] for a document that another release may have written:
// top-level keys that doc has no field for are left out and their names returned.
// What is left must be the one encoding of doc, as for Decode. Keys that stand
// twice, or differ from a field's only in case, are errors.
//
// Leaving out is safe only for what the reader may do without, so documents name
// the rest in a needs list, which the caller compares with [Missing].
func DecodeKnown(data []byte, doc any) (unknown []string, err error) {
	fields := map[string]string{}
	topLevel(reflect.TypeOf(doc), fields)
	known, unknown, err := split(data, fields)
	if err != nil {
		return nil, fmt.Errorf("decode %T: %w", doc, err)
	}
	return unknown, Decode(known, doc)
}

// topLevel collects the keys of a struct, and of those that it embeds, by their
// lower-case form.
func topLevel(t reflect.Type, into map[string]string) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Anonymous {
			topLevel(f.Type, into)
			continue
		}
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		into[strings.ToLower(name)] = name
	}
}

// split parts a compact JSON object into the one with the known keys and the
// names of the others.
func split(data []byte, fields map[string]string) (known []byte, unknown []string, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if tok, err := d.Token(); err != nil || tok != json.Delim('{') {
		return nil, nil, errors.New("not a JSON object")
	}
	seen := map[string]bool{}
	whole := []byte{'{'} // what a compact writer would have written
	known = []byte{'{'}
	for d.More() {
		tok, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		key, isText := tok.(string)
		if !isText || !plainKey(key) {
			return nil, nil, fmt.Errorf("%w: key %.40q", ErrNotCanonical, key)
		}
		lower := strings.ToLower(key)
		if seen[lower] {
			return nil, nil, fmt.Errorf("%w: key %q stands twice", ErrNotCanonical, key)
		}
		seen[lower] = true
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, err
		}
		whole = member(whole, key, value)
		switch fields[lower] {
		case key:
			known = member(known, key, value)
		case "":
			unknown = append(unknown, key)
		default:
			return nil, nil, fmt.Errorf("%w: key %q in another case", ErrNotCanonical, key)
		}
	}
	if _, err := d.Token(); err != nil {
		return nil, nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, nil, fmt.Errorf("%w: something follows the document", ErrNotCanonical)
	}
	if whole = append(whole, '}'); !bytes.Equal(whole, data) {
		return nil, nil, fmt.Errorf("%w: %s", ErrNotCanonical, firstDifference(data, whole))
	}
	return append(known, '}'), unknown, nil
}

func member(object []byte, key string, value []byte) []byte {
	if len(object) > 1 {
		object = append(object, ',')
	}
	object = append(object, '"')
	object = append(object, key...)
	object = append(object, '"', ':')
	return append(object, value...)
}

// plainKey reports whether a key needs no escape.
func plainKey(key string) bool {
	return key != "" && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_") == ""
}
