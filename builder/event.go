// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"fmt"
	"strings"
)

// Event is one piece of progress. State is one of: start, fetch, install,
// compress, push, note, cached, done.
type Event struct {
	Variant string  `json:"variant,omitempty"`
	Step    string  `json:"step"`
	State   string  `json:"state"`
	N       int     `json:"n,omitempty"` // packages so far
	Of      int     `json:"of,omitempty"`
	Bytes   int64   `json:"bytes,omitempty"` // so far, or of what is done
	OfBytes int64   `json:"ofBytes,omitempty"`
	Seconds float64 `json:"seconds,omitempty"`
	Text    string  `json:"text,omitempty"`
}

func (b *build) say(e Event) {
	if b.options.Progress != nil {
		b.options.Progress(e)
	}
}

// Note says something of the accounts of all variants.
func (o Options) Note(format string, args ...any) {
	if o.Progress != nil {
		o.Progress(Event{Step: stepAccounts, State: "note", Text: fmt.Sprintf(format, args...)})
	}
}

// counter turns dpkg's talk into package n of m.
func (b *build) counter(step string, of int) func(string) {
	n := 0
	return func(line string) {
		name, ok := strings.CutPrefix(line, "Setting up ")
		if !ok {
			return
		}
		n++
		name, _, _ = strings.Cut(name, " ")
		b.say(Event{Step: step, State: "install", N: min(n, of), Of: of, Text: name})
	}
}
