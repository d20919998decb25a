// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec"
)

func (s *Server) getNodes(w http.ResponseWriter, req *http.Request) {
	q, err := s.fleet().Read(req.URL.Query(), query.MaxListed)
	if err != nil {
		s.answer(w, http.StatusBadRequest, problemOf(query.WrongQuery, err))
		return
	}
	l := s.fleet().List(q)
	writable(l.Nodes, s.o.Say)
	s.answer(w, http.StatusOK, l)
}

// A row that cannot be written costs that row, and never the list: what is in it was
// said by one node, and a list is of all.

// writeReports writes what each node reported last, one line of JSON a node, of
// [view.MaxLine] bytes at most. It reports whether somebody reads them.
func writeReports(w io.Writer, nodes []*view.Node, signed map[string]string, say func(string, ...any)) bool {
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
			return false
		}
	}
	return true
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

// step is one of a node's boot, as the page draws it.
type step struct {
	Name, Result     string
	OK               bool
	Begin, End, Took string
	Bytes            string
	From, Width      float64 // of the chart, in thousandths
}

// leastWidth lets a short step be seen.
const leastWidth = 2

// chart returns the steps of a node's boot beside each other; nil where it tells none.
func chart(r *spec.Report) (list []step) {
	if r == nil {
		return nil
	}
	whole := 0.0
	for _, s := range r.Boot {
		whole = max(whole, s.Start+s.Took)
	}
	for _, s := range r.Boot {
		one := step{Name: s.Name, Result: s.Result, OK: s.Result == spec.StepOK, Begin: lasting(s.Start),
			End: lasting(s.Start + s.Took), Took: lasting(s.Took)}
		if s.Bytes != nil {
			one.Bytes = s.Bytes.String()
		}
		if whole > 0 {
			one.Width = max(leastWidth, 1000*s.Took/whole)
			one.From = min(1000*s.Start/whole, 1000-one.Width)
		}
		list = append(list, one)
	}
	return list
}

// lasting says how long something took, to three digits or so.
func lasting(milliseconds float64) string {
	switch d := time.Duration(milliseconds * float64(time.Millisecond)); {
	case milliseconds < 1000:
		return fmt.Sprintf("%.0f ms", milliseconds)
	case milliseconds < 100_000:
		return fmt.Sprintf("%.1f s", milliseconds/1000)
	default:
		return plain.Duration(d.Round(time.Second))
	}
}
