// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"testing"
)

// kept are some decisions of each transition that real nodes and loaders made in tests.
const kept = "testdata/traces.jsonl"

// Whatever real nodes and loaders met in tests, those of machines among them, is decided as it
// was then. The traces are gathered again, and kept, by
//
//	export CAISSON_TRACES=/tmp/traces
//	go test -count=1 ./bootagent/node ./bootagent/boot/initramfs ./test/vm
//	CAISSON_UPDATE=1 go test ./bootagent/decide
//
// and what differs in them is a decision that has changed.
func TestTraces(t *testing.T) {
	if from := os.Getenv("CAISSON_TRACES"); from != "" && os.Getenv("CAISSON_UPDATE") != "" {
		keepSome(t, from)
	}
	data, err := os.ReadFile(kept)
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
	for _, row := range Table {
		if met[row.Name] == (row.unmet != "") {
			t.Errorf("%s: a trace has it: %v; why none does: %q", row.Name, met[row.Name], row.unmet)
		}
	}
}

// ofEach is how many decisions of one transition are kept.
const ofEach = 4

// keepSome keeps what is there of gathered traces, and those that are kept already as far as
// they are decided so.
func keepSome(t *testing.T, from string) {
	t.Helper()
	gathered, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(kept)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string][]string{}
	for line := range bytes.Lines(slices.Concat(before, gathered)) {
		step, text, err := short(line)
		if err != nil {
			t.Fatalf("%v\n%s", err, line)
		}
		var is struct{ Facts Facts }
		if json.Unmarshal([]byte(text), &is) != nil || Next(&is.Facts).Name != step {
			continue // a fact is gone, or it is decided otherwise now
		}
		if list := by[step]; len(list) < ofEach && !slices.Contains(list, text) {
			by[step] = append(list, text)
		}
	}
	var out bytes.Buffer
	for _, step := range slices.Sorted(maps.Keys(by)) {
		for _, text := range by[step] {
			fmt.Fprintln(&out, text)
		}
	}
	if err := os.WriteFile(kept, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

var identifiers = regexp.MustCompile(`sha256:[0-9a-f]{64}|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}`)

// short is a decision without what is zero, and with short names in place of digests and
// other identifiers.
func short(line []byte) (step, text string, err error) {
	names := map[string]string{}
	line = identifiers.ReplaceAllFunc(line, func(id []byte) []byte {
		if names[string(id)] == "" {
			names[string(id)] = fmt.Sprintf("id-%c", 'a'+len(names))
		}
		return []byte(names[string(id)])
	})
	var trace struct {
		Step  string         `json:"step"`
		Facts map[string]any `json:"facts"`
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err := d.Decode(&trace); err != nil {
		return "", "", err
	}
	out, err := json.Marshal(map[string]any{"step": trace.Step, "facts": withoutZero(trace.Facts)})
	return trace.Step, string(out), err
}

func withoutZero(m map[string]any) map[string]any {
	maps.DeleteFunc(m, func(_ string, v any) bool {
		switch v := v.(type) {
		case map[string]any:
			return len(withoutZero(v)) == 0
		case json.Number:
			return v == "0"
		}
		return v == nil || v == false || v == ""
	})
	return m
}
