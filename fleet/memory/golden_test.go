// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// TestGolden: caisson.memory of 0.10.0 is read, and written byte-equal.
func TestGolden(t *testing.T) {
	name := filepath.Join(t.TempDir(), "caisson.memory")
	golden.Check(t, golden.Document{File: "testdata/golden/caisson.memory", Page: "../../docs/formats/site-files.md", New: new(document), Refused: true,
		Sample: func(v any) {
			d := v.(*document)
			d.APIVersion, d.Kind = spec.APIVersion, Kind
		},
		Write: func(v any) ([]byte, error) {
			m := &File{name: name, places: map[string]Seen{}}
			for place, seen := range v.(*document).Places {
				if err := m.Set(place, seen); err != nil {
					return nil, err
				}
			}
			return os.ReadFile(name)
		},
		Read: func(data []byte) (any, error) {
			if err := os.WriteFile(name, data, 0o644); err != nil {
				return nil, err
			}
			m, err := Open(name)
			if err != nil {
				return nil, err
			}
			return &document{spec.APIVersion, Kind, m.places}, nil
		},
		Types: []reflect.Type{reflect.TypeFor[document](), reflect.TypeFor[Seen](), reflect.TypeFor[Stamp]()}})
}
