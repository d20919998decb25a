// SPDX-License-Identifier: Apache-2.0

package release

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/caisson-os/caisson/test/golden"
)

// TestStatementGolden: the statement of a release key about an index is read, and written
// byte-equal.
func TestStatementGolden(t *testing.T) {
	golden.Check(t, golden.Document{File: "testdata/golden/layers.json", Page: "../../docs/formats/statement.md", New: new(Statement), Write: json.Marshal,
		Read:  func(data []byte) (any, error) { s := new(Statement); return s, json.Unmarshal(data, s) },
		Types: []reflect.Type{reflect.TypeFor[Statement]()}})
}
