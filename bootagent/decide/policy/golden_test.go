// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/test/golden"
)

// TestGolden: the corrections that a release counted are read by the next one.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/corrections.json", Page: "../../../docs/formats/node-files.md", New: new(pages), Write: json.Marshal,
		Read:  func(data []byte) (any, error) { p := new(pages); return p, json.Unmarshal(data, p) },
		Types: []reflect.Type{reflect.TypeFor[pages](), reflect.TypeFor[record]()}})
}
