// SPDX-License-Identifier: Apache-2.0

// Package golden holds files that one release of an agent writes and another reads: what was
// written once is read, and written byte-equal, and the page of the format names each key.
//
// Tests of the packages that write such files import it.
package golden

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// Document is a file that is kept on a node, or beside a site.
type Document struct {
	File   string                               // golden, below testdata/golden
	Page   string                               // that names its keys
	New    any                                  // pointer to a value of its type
	Sample func(v any)                          // gives a filled value what its reader looks at; nil where that is nothing
	Write  func(v any) ([]byte, error)          // as caisson writes it
	Read   func(data []byte) (v any, err error) // as caisson reads it
	Types  []reflect.Type                       // whose keys file and page have
	Later  func(file, key []byte) []byte        // the file as a later release writes it, with a further key; nil for plain JSON

	// Refused says that a key of a later release is refused, in any object of the file: it would
	// be lost where that is written again.
	Refused bool
}

// Check holds a document to its golden file, and its reader to leaving out, or refusing, a key of
// a later release. With CAISSON_UPDATE it writes a file where there is none: what a release wrote
// is never written again.
func Check(t *testing.T, d Document) {
	t.Helper()
	if os.Getenv("CAISSON_UPDATE") != "" {
		Fill(reflect.ValueOf(d.New).Elem())
		if d.Sample != nil {
			d.Sample(d.New)
		}
		data, err := d.Write(d.New)
		if err == nil {
			err = WriteNew(d.File, data)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(d.File)
	if err != nil {
		t.Fatal(err)
	}
	v, err := d.Read(golden)
	if err != nil {
		t.Fatalf("%s: %v", d.File, err)
	}
	if again, err := d.Write(v); err != nil || !bytes.Equal(again, golden) {
		t.Errorf("%s is written otherwise: %v\n%s", d.File, err, again)
	}
	later := d.Later
	if later == nil {
		later = AddKey
	}
	if d.Refused {
		refuses(t, d, golden)
	} else if again, err := d.Read(later(golden, []byte(`"laterKey":{"a":1}`))); err != nil || !reflect.DeepEqual(again, v) {
		t.Errorf("%s with a key of a later release: %+v, %v", d.File, again, err)
	}
	page, err := os.ReadFile(d.Page)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range d.Types {
		for i := range of.NumField() {
			key, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if key == "-" { // it is in no file
				continue
			}
			if !bytes.Contains(golden, []byte(`"`+key+`":`)) {
				t.Errorf("%s lacks %s of %s", d.File, key, of.Name())
			}
			if !bytes.Contains(page, []byte("\n| "+key+" |")) && !bytes.Contains(page, []byte("\n| "+key+", always |")) {
				t.Errorf("%s lacks %s of %s", d.Page, key, of.Name())
			}
		}
	}
}

// Head returns a Sample that says of which version and kind a document is.
func Head(apiVersion, kind string) func(v any) {
	return func(v any) {
		of := reflect.ValueOf(v).Elem()
		of.FieldByName("APIVersion").SetString(apiVersion)
		of.FieldByName("Kind").SetString(kind)
	}
}

// InFile sets how a document is written and read whose package does both in a file.
func (d Document) InFile(t *testing.T, write func(name string, v any) error, read func(name string) (any, error)) Document {
	name := filepath.Join(t.TempDir(), filepath.Base(d.File))
	d.Write = func(v any) ([]byte, error) {
		if err := write(name, v); err != nil {
			return nil, err
		}
		return os.ReadFile(name)
	}
	d.Read = func(data []byte) (any, error) {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			return nil, err
		}
		return read(name)
	}
	return d
}

// refuses adds a key to each object of a file in turn.
func refuses(t *testing.T, d Document, golden []byte) {
	for at, c := range golden {
		if c != '}' {
			continue
		}
		text := slices.Concat(golden[:at], []byte(`,"laterKey":{"a":1}`), golden[at:])
		var mend interface{ Hint() string }
		if _, err := d.Read(text); !errors.As(err, &mend) {
			t.Errorf("%s is not refused with a hint: %v\n%s", d.File, err, text)
		}
	}
}

// AddKey returns a JSON object with a further key.
func AddKey(object, key []byte) []byte {
	return slices.Concat(bytes.TrimSuffix(object, []byte("}")), []byte(","), key, []byte("}"))
}

// WriteNew writes a golden file where there is none.
func WriteNew(name string, data []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// Fill gives every field of a value one that is not its zero.
func Fill(v reflect.Value) {
	switch v.Type() {
	case reflect.TypeFor[json.RawMessage]():
		v.Set(reflect.ValueOf(json.RawMessage(`"a"`)))
		return
	case reflect.TypeFor[netip.Addr]():
		v.Set(reflect.ValueOf(netip.MustParseAddr("192.0.2.1")))
		return
	case reflect.TypeFor[netip.Prefix]():
		v.Set(reflect.ValueOf(netip.MustParsePrefix("192.0.2.0/24")))
		return
	case reflect.TypeFor[time.Time]():
		v.Set(reflect.ValueOf(time.Unix(1800000000, 0).UTC()))
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		Fill(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				Fill(v.Field(i))
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		Fill(v.Index(0))
	case reflect.Map:
		value := reflect.New(v.Type().Elem()).Elem()
		Fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(reflect.ValueOf("a").Convert(v.Type().Key()), value)
	case reflect.String:
		v.SetString("a")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint8, reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	}
}
