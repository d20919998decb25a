// SPDX-License-Identifier: Apache-2.0

package service

import (
	"reflect"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// TestLockGolden: services.lock of 0.10.0 is read, and written byte-equal.
func TestLockGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/services.lock", Page: "../../../docs/formats/site-files.md", New: new(Lock), Refused: true,
		Sample: func(v any) {
			golden.Head(spec.APIVersion, LockKind)(v)
			l := v.(*Lock)
			row := l.Services["a"]
			row.Commit, row.Signed.Commit = strings.Repeat("a", 40), strings.Repeat("b", 40)
			row.Image.Digest = "sha256:" + strings.Repeat("c", 64)
			l.Services["a"] = row
		},
		Write: func(v any) ([]byte, error) { return v.(*Lock).Encode() },
		Read:  func(data []byte) (any, error) { return ParseLock(data) },
		Types: []reflect.Type{reflect.TypeFor[Lock](), reflect.TypeFor[Locked](), reflect.TypeFor[Signed](), reflect.TypeFor[Frozen](), reflect.TypeFor[spec.Blob]()}})
}
