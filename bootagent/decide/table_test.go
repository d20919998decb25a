// SPDX-License-Identifier: Apache-2.0

package decide

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var events = []Event{Begin, Look, Answer, Try, Made, Probed, Undo, Effect, Judged, Boot}

// The last row of each event always holds, and names are names.
func TestEveryEventHasAnAnswer(t *testing.T) {
	for _, e := range events {
		if Next(&Facts{Event: e, Ended: true}).Name == "" {
			t.Errorf("%s: no name", e)
		}
	}
	last, names := map[Event]*Row{}, map[string]bool{}
	for i := range Table {
		r := &Table[i]
		if before := last[r.On]; before != nil && before.is == nil {
			t.Errorf("%s: no row after %s is ever met", r.Name, before.Name)
		}
		if i > 0 && Table[i-1].On != r.On && last[r.On] != nil {
			t.Errorf("%s: the rows of %s are not together", r.Name, r.On)
		}
		if names[r.Name] || strings.Trim(r.Name, "abcdefghijklmnopqrstuvwxyz-") != "" {
			t.Errorf("%q is no name, or has another row, too", r.Name)
		}
		if !slices.Contains(events, r.On) || r.When == "" || r.Does == "" || r.Act == "" {
			t.Errorf("%s: %+v", r.Name, *r)
		}
		last[r.On], names[r.Name] = r, true
	}
	for _, e := range events {
		if last[e] == nil || last[e].is != nil {
			t.Errorf("%s: there are facts without an answer", e)
		}
	}
}

// titles are what the page calls the events.
var titles = map[Event]string{
	Begin: "Before anything else", Look: "A look at what runs", Answer: "The registry was asked", Try: "A change is to be made", Made: "It was made, or failed",
	Probed: "The way to the registry was tried", Undo: "A change on trial is undone", Effect: "A generation is in effect", Judged: "Its checks were looked at", Boot: "The loader",
}

// page is the table as the page shows it.
func page() string {
	var b strings.Builder
	for _, e := range events {
		fmt.Fprintf(&b, "\n**%s**\n\n| when | what the node does | transition |\n|---|---|---|\n", titles[e])
		for _, r := range Table {
			if r.On == e {
				fmt.Fprintf(&b, "| %s | %s | `%s` |\n", r.When, r.Does, r.Name)
			}
		}
	}
	return b.String()
}

// TestThePageShowsTheTable holds that the page has the table as it is. With
// CAISSON_UPDATE it writes it there.
func TestThePageShowsTheTable(t *testing.T) {
	const name, from, to = "../../docs/decisions.md", "<!-- decisions: printed by bootagent/decide -->\n", "<!-- end of decisions -->\n"
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(data), from)
	shown, after, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the table", name)
	}
	want := page() + "\n"
	if shown == want {
		return
	}
	if os.Getenv("CAISSON_UPDATE") == "" {
		t.Fatalf("%s shows another table; CAISSON_UPDATE=1 go test ./bootagent/decide writes it anew", name)
	}
	if err := os.WriteFile(name, []byte(before+from+want+to+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
