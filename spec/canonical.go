// SPDX-License-Identifier: Apache-2.0

package spec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
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
