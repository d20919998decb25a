// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
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
