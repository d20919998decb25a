// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/fleet/view"
	"github.com/caisson-os/caisson/spec"
)

// lists are all answers in which one node's words stand beside those of others.
var lists = []string{"/v1/nodes", "/v1/reports", "/v1/summary", "/v1/slots", "/v1/services", "/v1/layers", "/v1/nodes/n1", "/v1/nodes/n2", "/metrics", "/", "/nodes", "/nodes/n1", "/nodes/n2", "/layers", "/services", "/slots"}

// whole reports what is wrong with an answer in which all nodes should be.
func whole(path, text string, status int) string {
	switch {
	case status != http.StatusOK:
		return "its status"
	case strings.HasPrefix(path, "/v1/reports"):
		for line := range strings.Lines(text) {
			if len(line) > report.MaxLine || !json.Valid([]byte(line)) {
				return fmt.Sprintf("a line of %d bytes", len(line))
			}
		}
		if !strings.Contains(text, `"node":"n2"`) {
			return "n2 is left out"
		}
	case strings.HasPrefix(path, "/v1/") && !json.Valid([]byte(text)):
		return "not whole"
	case path == "/v1/nodes" && (!strings.Contains(text, `"name":"n1"`) || !strings.Contains(text, `"name":"n2"`)):
		return "a node is left out"
	}
	return ""
}

// TestOneReportAndTheOthers: whatever one node reports, each answer is whole, and the
// driver of a rollout reads what the others report.
func TestOneReportAndTheOthers(t *testing.T) {
	much := strings.Repeat("<", 2000)
	early := time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("x", 86340)) // year -1 in UTC
	for what, change := range map[string]func(*spec.Report){
		"texts without end": func(r *spec.Report) {
			r.Axes.Health.Detail, r.Axes.Sync.Detail, r.Axes.Activity.State, r.Agent, r.LayerVersion = much, much, much, much, much
		},
		"a date before all dates": func(r *spec.Report) {
			r.Time, r.Expires, r.Axes.Health.Since, r.Axes.Activity.Until = early, early, early, early
			r.Drift = []spec.Drift{{Item: "x", Since: early}}
			r.Operations = []spec.OperationStatus{{Name: "x", Next: early, Since: early}}
			r.NextWindow = &spec.NextWindow{Interval: spec.Interval{From: early, To: early}}
		},
		"numbers without end": func(r *spec.Report) {
			r.Interval, r.Generation, r.Epoch, r.More = -1<<62, 1<<63, 1<<63, 1<<62
			r.Boot = []spec.Step{{Name: "x", Bytes: &spec.Bytes{Fetched: -1, Had: 1 << 62}}}
		},
	} {
		t.Run(what, func(t *testing.T) {
			s := newSite(t, rowsOf("n1", "n2"), false)
			s.knows(withServices)
			for node, raw := range map[string][]byte{"n1": sealed(t, newKey(t), "n1", 1, change), "n2": sealed(t, newKey(t), "n2", 1, nil)} {
				if status, text := s.ask("POST", "/v1/report", raw); status != 204 {
					t.Fatal(node, status, text)
				}
			}
			for _, path := range lists {
				status, text := s.ask("GET", path, nil)
				if wrong := whole(path, text, status); wrong != "" {
					t.Errorf("%s: %s: %d %.300s", path, wrong, status, text)
				}
			}
			_, text := s.ask("GET", "/v1/reports", nil)
			if all, err := report.Hear(strings.NewReader(text), report.Asked{Published: map[string]bool{"n1": true, "n2": true}}, nil, time.Now()); err != nil || len(all) != 2 {
				t.Errorf("a driver reads %d: %v", len(all), err)
			}
		})
	}
}

// TestOldRows: what somebody else wrote into the database costs the rows that it is in until their nodes report again.
func TestOldRows(t *testing.T) {
	early := time.Date(0, 1, 1, 0, 0, 0, 0, time.FixedZone("x", 86340))
	last := func(change func(*spec.Report)) string {
		r := spec.NewReport(&spec.Status{Fleet: "metal", Node: "n1", BootID: "b", Health: spec.HealthOK, Overlay: other(1), Layer: layer})
		r.Key, r.Grade, r.Seq = "k", spec.KeyPinned, 1
		change(r)
		data, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	offered := `{"report":` + last(func(r *spec.Report) { r.Axes.Health.Since = early; r.Agent = strings.Repeat("<", 9000) }) + `,"at":"0000-01-01T00:00:00+23:59","why":"x"}`
	for what, row := range map[string]store.Node{
		"not a report":        {Report: "{", Received: time.Now()},
		"an old time":         {Report: last(func(r *spec.Report) { r.Time, r.Axes.Sync.Since = early, early }), Received: early, KeySince: early},
		"long texts":          {Report: last(func(r *spec.Report) { r.Axes.Health.Detail = strings.Repeat("<", 11000) }), Received: time.Now()},
		"an offer":            {Report: last(func(*spec.Report) {}), Offered: offered, Received: time.Now()},
		"not an offer":        {Report: last(func(*spec.Report) {}), Offered: "[", Received: time.Now()},
		"a time beyond dates": {Report: last(func(*spec.Report) {}), Received: time.UnixMilli(1 << 60)},
	} {
		t.Run(what, func(t *testing.T) {
			key := newKey(t)
			row.Name, row.Key, row.Grade, row.Seq, row.Boot = "n1", keyID(key), spec.KeyPinned, 1, "b"
			change := store.Change{Nodes: []store.Node{row}}
			if what == "a time beyond dates" {
				change.Events, change.Taken = []store.Event{{At: time.Unix(1<<40, 0), Node: "n1", What: "x"}}, []store.Slot{{Group: "default", Node: "n1", Since: time.Unix(-1<<40, 0)}}
			}
			s := newSiteOver(t, change, rowsOf("n1", "n2"))
			s.knows(withServices)
			if status, text := s.ask("POST", "/v1/report", sealed(t, newKey(t), "n2", 1, nil)); status != 204 {
				t.Fatal(status, text)
			}
			for _, path := range lists {
				status, text := s.ask("GET", path, nil)
				if wrong := whole(path, text, status); wrong != "" {
					t.Errorf("%s: %s: %d %.300s", path, wrong, status, text)
				}
			}
			if what == "not a report" {
				if _, text := s.ask("GET", "/v1/nodes/n1", nil); !strings.Contains(text, "cannot be read") {
					t.Errorf("nothing says so: %s", text)
				}
			}
			if status, text := s.ask("POST", "/v1/report", sealed(t, key, "n1", 2, nil)); status != 204 {
				t.Fatal(status, text)
			}
			if _, text := s.ask("GET", "/v1/nodes/n1", nil); !strings.Contains(text, `"condition":"fine"`) && row.Offered == "" {
				t.Errorf("after its next report: %s", text)
			}
		})
	}
}

// TestRowsThatCannotBeWritten: a row that JSON has no form for, or that is too long for
// its reader, costs that row, and the log names it.
func TestRowsThatCannotBeWritten(t *testing.T) {
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	early := time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC)
	nodes := []*view.Node{{Name: "a", Report: &view.Brief{}}, {Name: "b", Report: &view.Brief{}, Received: early},
		{Name: "c", Report: &view.Brief{Overlay: strings.Repeat("x", report.MaxLine)}}, {Name: "d", Report: &view.Brief{}}}
	var b strings.Builder
	report.Write(&b, nodes, nil, say)
	all, err := report.Hear(strings.NewReader(b.String()), report.Asked{Published: map[string]bool{"a": true, "b": true, "c": true, "d": true}}, nil, time.Now())
	if _, a := all["a"]; err != nil || len(all) != 2 || !a || len(said) != 2 || !strings.Contains(said[0], "node b:") || !strings.Contains(said[1], "node c:") {
		t.Errorf("%v, %v, %q", all, err, said)
	}
	said = nil
	lines := []view.Line{{Name: "a", Why: "fine"}, {Name: "b", Received: early, Condition: view.Broken}, {Name: "c"}}
	writable(lines, say)
	if _, err := spec.Encode(lines); err != nil || lines[0].Why != "fine" || lines[1].Condition != view.Broken || !strings.Contains(lines[1].Why, "cannot be written") || len(said) != 1 {
		t.Errorf("%+v, %v, %q", lines, err, said)
	}
	if !slices.ContainsFunc(lines, func(l view.Line) bool { return l.Name == "c" }) {
		t.Error("a row after it is left out")
	}
}
