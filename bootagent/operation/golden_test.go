// SPDX-License-Identifier: Apache-2.0

package operation

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/test/golden"
)

// TestGolden: what a release wrote of an operation is read by the next one.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/record.json", Page: "../../docs/formats/node-files.md", New: new(record), Write: json.Marshal,
		Read:  func(data []byte) (any, error) { r := new(record); return r, json.Unmarshal(data, r) },
		Types: []reflect.Type{reflect.TypeFor[record](), reflect.TypeFor[turn]()}})
}
