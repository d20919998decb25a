// SPDX-License-Identifier: Apache-2.0

package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"unicode/utf8"
)

// byTokens is decode by the tokens of encoding/json: slow, and plainly right.
func byTokens(data []byte, v any, known bool) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	w := tokens{json.NewDecoder(bytes.NewReader(data)), known}
	w.UseNumber()
	if err := w.value(reflect.TypeOf(v), 0); err != nil {
		return err
	}
	if _, err := w.Token(); err != io.EOF {
		return errors.New("something follows the document")
	}
	return json.Unmarshal(data, v)
}

type tokens struct {
	*json.Decoder
	known bool
}

// value reads one value and compares its keys with those of t, which may be nil.
func (w tokens) value(t reflect.Type, depth int) error {
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

func (w tokens) object(t reflect.Type, depth int) error {
	fields := fieldsOf(t)
	seen := map[string]bool{}
	for w.More() {
		tok, err := w.Token()
		if err != nil {
			return err
		}
		key := tok.(string) // the decoder lets nothing else stand here
		if seen[key] {
			return fmt.Errorf("key %q is given twice", key)
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
				field = f.of
			}
		}
		if err := w.value(field, depth+1); err != nil {
			return err
		}
	}
	_, err := w.Token()
	return err
}
