// SPDX-License-Identifier: Apache-2.0

// Package traces gathers what real nodes decide in tests, with the facts they had: those of
// namespaces, of processes that a test starts, and of machines. Package decide's tests keep
// some of each transition, and decide them again.
package traces

import (
	"encoding/json"
	"os"

	"github.com/caisson-os/caisson/bootagent/decide"
	"github.com/caisson-os/caisson/bootagent/tell/events"
)

// Variable names the file that traces are appended to. Where it is not set, none are gathered.
const Variable = "CAISSON_TRACES"

// Into returns what gathers a decision, nil where nobody asks for traces.
func Into() decide.Observer {
	if os.Getenv(Variable) == "" {
		return nil
	}
	return func(f *decide.Facts, s decide.Step) {
		line, err := json.Marshal(events.Decision{Step: s.Name, Facts: *f})
		if err == nil {
			err = Add(line)
		}
		if err != nil {
			panic(err) // of a test
		}
	}
}

// Add gathers lines as package events writes them, where somebody asks for that.
func Add(lines []byte) error {
	name := os.Getenv(Variable)
	if name == "" || len(lines) == 0 {
		return nil
	}
	if lines[len(lines)-1] != '\n' {
		lines = append(lines, '\n')
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.Write(lines); err != nil {
		_ = f.Close() // the first error says more
		return err
	}
	return f.Close()
}
