// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// TestGolden: caisson.memory of 0.10.0 is read, and written byte-equal.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/caisson.memory", Page: "../../docs/formats/site-files.md", New: new(document), Refused: true,
		Sample: golden.Head(spec.APIVersion, Kind),
		Types:  []reflect.Type{reflect.TypeFor[document](), reflect.TypeFor[Seen](), reflect.TypeFor[Stamp]()},
	}.InFile(t, func(name string, v any) (err error) {
		m := &File{name: name, places: map[string]Seen{}}
		for place, seen := range v.(*document).Places {
			err = m.Set(place, seen) // a golden document has one
		}
		return err
	}, func(name string) (any, error) {
		m, err := Open(name)
		if err != nil {
			return nil, err
		}
		return &document{spec.APIVersion, Kind, m.places}, nil
	}))
}
