// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"bytes"
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
	golden.Check(t, golden.Document{File: "testdata/golden/caisson.lock", Page: "../docs/formats/site-files.md", New: new(LockFile), Refused: true,
		Sample: golden.Head(spec.APIVersion, LockKind),
		Types:  []reflect.Type{reflect.TypeFor[LockFile](), reflect.TypeFor[Lock](), reflect.TypeFor[apt.Release](), reflect.TypeFor[apt.Signer](), reflect.TypeFor[apt.Deb]()},
	}.InFile(t, func(name string, v any) error { return v.(*LockFile).Write(name) },
		func(name string) (any, error) { return ReadLock(name) }))
	// One of before releases named their archives.
	const before = "testdata/golden/caisson.0.9.0.lock"
	want, err := os.ReadFile(before)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ReadLock(before)
	if err != nil {
		t.Fatal(err)
	}
	again := filepath.Join(t.TempDir(), "caisson.lock")
	if err := l.Write(again); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(again); err != nil || !bytes.Equal(got, want) {
		t.Errorf("a lock of 0.9.0 is written otherwise: %v\n%s", err, got)
	}
}
