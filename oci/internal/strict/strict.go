// SPDX-License-Identifier: Apache-2.0

// Package strict reads JSON that others wrote, in the one way that leaves no
// room for two opinions.
//
// encoding/json takes the last of two equal keys, matches "Layers" to "layers",
// mends broken UTF-8 and lets a caller overlook what follows. Each of these lets
// a signer and a verifier, or a scanner and a node, read different things from
// the same bytes. Here they are errors. Documents that only caisson writes go
// through spec.Decode, which is stricter still; this package is for manifests
// and bundles. What is read into memory has a limit that is counted while reading: what a sender
// announces is never relied on, see [ReadCapped].
package strict

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"reflect"
	"strings"
	"sync"
	"unicode/utf8"
)

// maxDepth is how deep values nest. Manifests need 4, statements 6.
const maxDepth = 16

// Decode reads one JSON value into v, which means nothing where it returns an error. Unknown keys are ignored.
func Decode(data []byte, v any) error { return decode(data, v, false) }

// DecodeKnown is Decode for documents that must not hold unknown keys.
func DecodeKnown(data []byte, v any) error { return decode(data, v, true) }

func decode(data []byte, v any, known bool) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	err := json.Unmarshal(data, v)
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return err // what is not JSON cannot be gone through
	}
	w := walker{data, known}
	return cmp.Or(w.value(reflect.TypeOf(v), 0), err)
}

// walker goes through one JSON value, which is valid: what it skips over needs no second look.
type walker struct {
	left  []byte // what it has not gone through
	known bool
}

// next is the byte that the next value, key or end begins with.
func (w *walker) next() byte {
	w.left = bytes.TrimLeft(w.left, " \t\r\n")
	return w.left[0]
}

// take goes over n bytes and returns them.
func (w *walker) take(n int) (taken []byte) {
	taken, w.left = w.left[:n], w.left[n:]
	return taken
}

// text goes over a string and returns it, quoted.
func (w *walker) text() []byte {
	n := 1
	for ; w.left[n] != '"'; n++ {
		if w.left[n] == '\\' {
			n++
		}
	}
	return w.take(n + 1)
}

// value goes over one value and compares its keys with those of t, which may be nil.
func (w *walker) value(t reflect.Type, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested more than %d deep", maxDepth)
	}
	switch w.next() {
	case '{':
		return w.object(plain(t), depth)
	case '[':
		var elem reflect.Type
		if t = plain(t); t != nil && t.Kind() == reflect.Slice {
			elem = t.Elem()
		}
		return w.each(']', func() error { return w.value(elem, depth+1) })
	case '"':
		w.text()
	default: // a number, or a word
		n := bytes.IndexAny(w.left, ",]} \t\r\n")
		if n < 0 {
			n = len(w.left)
		}
		w.take(n)
	}
	return nil
}

// each goes over the elements of a list, or the members of an object.
func (w *walker) each(end byte, one func() error) error {
	w.take(1)
	for w.next() != end {
		if err := one(); err != nil {
			return err
		}
		if w.next() == ',' {
			w.take(1)
		}
	}
	w.take(1)
	return nil
}

func (w *walker) object(t reflect.Type, depth int) error {
	fields := fieldsOf(t)
	seen := map[string]bool{}
	return w.each('}', func() error {
		w.next()
		quoted := w.text()
		key := string(quoted[1 : len(quoted)-1])
		if strings.Contains(key, `\`) {
			if err := json.Unmarshal(quoted, &key); err != nil {
				return err
			}
		}
		if seen[key] {
			return fmt.Errorf("key %q is given twice", key)
		}
		seen[key] = true
		w.next()
		w.take(1) // the colon
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
		return w.value(field, depth+1)
	})
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

// field is one of a struct, by its name in JSON.
type field struct {
	name string
	of   reflect.Type
}

// byType are the fields of structs: there are few types.
var byType sync.Map

// fieldsOf lists the fields of a struct, which embeds none.
func fieldsOf(t reflect.Type) []field {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	if list, ok := byType.Load(t); ok {
		return list.([]field)
	}
	var list []field
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		list = append(list, field{name, f.Type})
	}
	byType.Store(t, list)
	return list
}

// find returns the field of a key, nil for a key of no field, and an error
// for one that encoding/json would take for a field's.
func find(fields []field, key string) (*field, error) {
	for i, f := range fields {
		if f.name == key {
			return &fields[i], nil
		}
	}
	for _, f := range fields {
		if strings.EqualFold(f.name, key) {
			return nil, fmt.Errorf("key %q is not %q", key, f.name)
		}
	}
	return nil, nil
}

// Caps bound how much a document may hold, so that a small text does not become
// large in memory: three bytes can be a struct of two hundred.
type Caps struct {
	Values  int // keys and values, at any depth
	Entries int // elements of any one list, or members of any one object
}

// ErrLarge is returned for a document beyond its caps.
var ErrLarge = errors.New("the document holds too much")

// Check counts what data holds and takes no memory for it. It returns [ErrLarge]
// for a document beyond the caps and nil for all else, also for what is not JSON:
// that is for Decode to say.
func (c Caps) Check(data []byte) error {
	values, depth := 1, 0
	var entries [maxDepth + 2]int // of the open lists and objects, by depth
	text, escaped := false, false
	for _, b := range data {
		switch {
		case escaped:
			escaped = false
		case text && b == '\\':
			escaped = true
		case b == '"':
			text = !text
		case text:
		case b == '[' || b == '{':
			if depth++; depth == len(entries) {
				return nil // Decode refuses the depth
			}
			values++
			entries[depth] = 1
		case (b == ']' || b == '}') && depth > 0:
			depth--
		case b == ',':
			values++
			entries[depth]++
		case b == ':':
			values++
		}
		if values > c.Values {
			return fmt.Errorf("%w: more than %d keys and values", ErrLarge, c.Values)
		}
		if entries[depth] > c.Entries {
			return fmt.Errorf("%w: more than %d elements in one list", ErrLarge, c.Entries)
		}
	}
	return nil
}

// ReadCapped reads body, at most one byte more than limit, by which the caller sees
// that there is more. Memory for announced bytes is taken at once when they are
// within the limit; a negative number is an unknown size.
func ReadCapped(body io.Reader, announced, limit int64) ([]byte, error) {
	var b bytes.Buffer
	if announced >= 0 && announced <= limit {
		b.Grow(int(announced) + bytes.MinRead)
	}
	_, err := b.ReadFrom(io.LimitReader(body, limit+1))
	return b.Bytes(), err
}

// ReadFileCapped reads a file below root; one of more than limit bytes is an error.
func ReadFileCapped(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	size := int64(-1)
	if info, err := f.Stat(); err == nil {
		size = info.Size()
	}
	data, err := ReadCapped(f, size, limit)
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return data, err
}

// Drain reads a little of a body so that the connection can be used again.
func Drain(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 64<<10) // only a kindness to the connection
	_ = resp.Body.Close()                          // its body is not used
}
