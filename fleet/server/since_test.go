// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/report"
)

// TestALookIsAnsweredWithWhatIsNew: the reports that a driver gets at a look are those that came since
// the last one, by number; who asks for none of that gets all, as before.
func TestALookIsAnsweredWithWhatIsNew(t *testing.T) {
	const nodes = 200
	var names []string
	asked := report.Asked{Fleet: "metal", All: true, Published: map[string]bool{}, Heard: &report.Heard{}}
	for i := range nodes {
		names = append(names, fmt.Sprintf("n%03d", i))
		asked.Published[names[i]] = true
	}
	s := newSite(t, rowsOf(names...), false)
	send := func(i int, seq uint64) {
		t.Helper()
		if err := s.take(t.Context(), sealed(t, killKey(t, i), names[i], seq, nil)); err != nil {
			t.Fatal(err)
		}
	}
	look := func(want int) {
		t.Helper()
		_, text := s.ask("GET", "/v1/reports?"+asked.Query(nil), nil)
		if got := strings.Count(text, `"received"`); got != want {
			t.Errorf("a look is answered with %d reports, not %d", got, want)
		}
		if all, err := report.Hear(strings.NewReader(text), asked, nil, time.Now()); err != nil || len(all) != nodes {
			t.Errorf("a driver knows %d reports of %d: %v", len(all), nodes, err)
		}
	}
	for i := range nodes {
		send(i, 1)
	}
	look(nodes)
	for looks := range 4 {
		for i := range 3 {
			send(10*looks+i, 2)
		}
		look(3)
		look(0)
	}
	for path, want := range map[string]int{"/v1/reports": nodes, "/v1/reports?after=x": nodes + 1, "/v1/reports?signed=1&after=" + url.QueryEscape("1 2"): nodes + 1} {
		if _, text := s.ask("GET", path, nil); strings.Count(text, "\n") != want {
			t.Errorf("%s: %d lines, not %d", path, strings.Count(text, "\n"), want)
		}
	}
}
