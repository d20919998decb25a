// SPDX-License-Identifier: Apache-2.0

package gate

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/golden"
)

// TestGolden: what a release wrote of checks is read by the next one.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/gates.json", Page: "../../../docs/formats/node-files.md", New: new(Record), Write: spec.Encode,
		Read:  func(data []byte) (any, error) { r := new(Record); return r, json.Unmarshal(data, r) },
		Types: []reflect.Type{reflect.TypeFor[Record](), reflect.TypeFor[Progress]()}})
}
