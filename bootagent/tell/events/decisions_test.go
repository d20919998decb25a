// SPDX-License-Identifier: Apache-2.0

package events

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/caisson-os/caisson/bootagent/decide"
)

// What is noted is decided again as it was; nothing is noted where nobody asked for it, and no
// more than the file may have.
func TestNotes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "decisions.jsonl")
	note := DecisionsInto(file)
	facts := &decide.Facts{Event: decide.Look}
	step := decide.Next(facts)
	note(facts, step)
	if err := BeginDecisions(file, []string{"quiet", "caisson.trial=3"}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Fatalf("it notes what nobody asked for: %v", err)
	}
	if err := BeginDecisions(file, []string{"quiet", DecisionsWord}); err != nil {
		t.Fatal(err)
	}
	note(facts, step)
	note(facts, step)
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range bytes.Lines(data) {
		var d Decision
		if err := json.Unmarshal(line, &d); err != nil {
			t.Fatal(err)
		}
		if again := decide.Next(&d.Facts); d.Step != step.Name || again.Name != step.Name {
			t.Errorf("%s was noted as %s, and is decided as %s", step.Name, d.Step, again.Name)
		}
		lines++
	}
	if lines != 2 {
		t.Errorf("%d lines", lines)
	}
	if err := os.Truncate(file, decisionsLimit+1); err != nil {
		t.Fatal(err)
	}
	note(facts, step)
	if info, err := os.Stat(file); err != nil || info.Size() != decisionsLimit+1 {
		t.Errorf("%v, %v", info, err)
	}
}
