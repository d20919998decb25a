// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"bytes"
	"encoding/json"
	"os"
	"testing"
)

// Whatever real nodes met in the tests of package node is decided as it was then. The
// traces are written anew by
//
//	CAISSON_UPDATE=1 go test ./bootagent/node
//
// and what differs in them is a decision that has changed.
func TestTraces(t *testing.T) {
	data, err := os.ReadFile("testdata/traces.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	met := map[string]bool{}
	for line := range bytes.Lines(data) {
		var trace struct {
			Step  string
			Facts Facts
		}
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields() // a fact that is gone
		if err := d.Decode(&trace); err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		met[trace.Step] = true
		if got := Next(&trace.Facts); got.Name != trace.Step {
			t.Errorf("decided is %s, and was %s:\n%s", got.Name, trace.Step, line)
		}
	}
	if len(met) < len(Table)/2 {
		t.Errorf("%d of %d transitions are in the traces: it tests little", len(met), len(Table))
	}
}
