// SPDX-License-Identifier: Apache-2.0

package blackbox

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// TestGolden: a slot that a release filled is read by the next one.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/slot", Page: "../../../docs/formats/node-files.md", New: new(record),
		Write: func(v any) ([]byte, error) { return encode(*v.(*record)) },
		Read: func(data []byte) (any, error) {
			r, ok := decode(data)
			if !ok {
				return nil, errors.New("the slot is damaged")
			}
			return &r, nil
		},
		Types: []reflect.Type{reflect.TypeFor[record](), reflect.TypeFor[spec.Event]()},
		Later: func(file, key []byte) []byte {
			line, _, _ := bytes.Cut(file, []byte("\n"))
			_, body, _ := bytes.Cut(line, []byte(" "))
			body = golden.AddKey(body, key)
			return fmt.Appendf(nil, "%08x %s\n", crc32.Checksum(body, castagnoli), body)
		}})
}
