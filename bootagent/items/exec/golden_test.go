// SPDX-License-Identifier: Apache-2.0

package exec

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/test/golden"
)

// TestGolden: the history of a script that a release wrote is read by the next one.
func TestGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/run.json", Page: "../../../docs/formats/node-files.md", New: new(record), Write: json.Marshal,
		Read:  func(data []byte) (any, error) { return parseRecord("run.json", data) },
		Types: []reflect.Type{reflect.TypeFor[record]()}})
}
