// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// TestLockGolden: caisson.lock of 0.10.0 is read, and written byte-equal.
func TestLockGolden(t *testing.T) {
	name := filepath.Join(t.TempDir(), "caisson.lock")
	golden.Check(t, golden.Document{File: "testdata/golden/caisson.lock", Page: "../docs/formats/site-files.md", New: new(LockFile), Refused: true,
		Sample: func(v any) {
			l := v.(*LockFile)
			l.APIVersion, l.Kind = spec.APIVersion, LockKind
		},
		Write: func(v any) ([]byte, error) {
			if err := v.(*LockFile).Write(name); err != nil {
				return nil, err
			}
			return os.ReadFile(name)
		},
		Read: func(data []byte) (any, error) {
			if err := os.WriteFile(name, data, 0o644); err != nil {
				return nil, err
			}
			return ReadLock(name)
		},
		Types: []reflect.Type{reflect.TypeFor[LockFile](), reflect.TypeFor[Lock](), reflect.TypeFor[apt.Release](), reflect.TypeFor[apt.Deb]()}})
}
