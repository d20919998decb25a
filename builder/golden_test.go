// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/builder/apt"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// TestLockGolden: caisson.lock of 0.10.0 is read, and written byte-equal.
func TestLockGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/caisson.lock", Page: "../docs/formats/site-files.md", New: new(LockFile), Refused: true,
		Sample: golden.Head(spec.APIVersion, LockKind),
		Types:  []reflect.Type{reflect.TypeFor[LockFile](), reflect.TypeFor[Lock](), reflect.TypeFor[apt.Release](), reflect.TypeFor[apt.Deb]()},
	}.InFile(t, func(name string, v any) error { return v.(*LockFile).Write(name) },
		func(name string) (any, error) { return ReadLock(name) }))
}
