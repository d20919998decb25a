// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
)

// A row that cannot be written costs that row, and never the list: what is in it was
// said by one node, and a list is of all.

// writeReports writes what each node reported last, one line of JSON a node, of
// [view.MaxLine] bytes at most.
func writeReports(w io.Writer, nodes []*view.Node, signed map[string]string, say func(string, ...any)) {
	for _, n := range nodes {
		r, ok := n.Reported()
		if !ok {
			continue
		}
		r.Signed = []byte(signed[n.Name])
		line, err := spec.Encode(r) // no < becomes six bytes: a reader of lines has a bound for each
		if err == nil && len(line) >= view.MaxLine {
			err = fmt.Errorf("it has %d bytes as JSON", len(line))
		}
		if err != nil {
			say("node %s: its report is left out of /v1/reports: %v", n.Name, err)
			continue
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return // nobody listens any more
		}
	}
}

// writable puts in the place of each line that JSON has no form for one that says so.
func writable(lines []view.Line, say func(string, ...any)) {
	if _, err := json.Marshal(lines); err == nil {
		return
	}
	for i, l := range lines {
		if _, err := json.Marshal(l); err != nil {
			say("node %s: its row of a list cannot be written: %v", l.Name, err)
			lines[i] = view.Line{Name: l.Name, Condition: l.Condition, Kind: l.Kind, Why: "what it reported cannot be written: " + err.Error()}
		}
	}
}
