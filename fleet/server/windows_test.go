// SPDX-License-Identifier: Apache-2.0

package server

import (
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/store"
	"github.com/caisson-os/caisson/spec"
)

// windowed has windows by overlay, as they were read.
type windowed struct {
	sentAll
	by map[string]*spec.Maintenance
}

func (w windowed) Windows(overlay string) (*spec.Maintenance, bool) {
	m, read := w.by[overlay]
	return m, read
}

// opening is a window that is open for hours from each of some times.
func opening(hours int, from ...time.Time) spec.Window {
	var w spec.Window
	for _, at := range from {
		w.Intervals = append(w.Intervals, spec.Interval{From: at, To: at.Add(time.Duration(hours) * time.Hour)})
	}
	return w
}

// TestWindows: nodes whose windows open alike in the next days are one group, each opening stands on
// its day, and what is over, too far off, not signed or not read is not shown as an opening.
func TestWindows(t *testing.T) {
	at := func(day, hour int) time.Time { return time.Date(2026, 11, 2+day, hour, 0, 0, 0, time.UTC) } // a Monday
	rows := rowsOf("n1", "n2", "n3", "n4", "n5", "n6")
	for i, name := range []string{"n1", "n2", "n3", "n4", "n5", "n6"} {
		rows[name] = spec.Published{Overlay: other(i + 1), Layer: layer, Generation: 7}
	}
	s := newSiteOver(t, store.Change{}, rows, func(s *site) { s.clock = func() time.Time { return at(0, 12) } })
	far := at(40, 0)
	night := func(more ...time.Time) *spec.Maintenance {
		return &spec.Maintenance{Horizon: far, Windows: map[string]spec.Window{"<night>": opening(4, append([]time.Time{at(0, 2), at(1, 22)}, more...)...)}}
	}
	by := map[string]*spec.Maintenance{}
	for name, m := range map[string]*spec.Maintenance{"n1": night(), "n2": night(at(8, 2)), "n3": nil,
		"n4": {Horizon: at(3, 0), Windows: map[string]spec.Window{"always": opening(24*30, at(-3, 0))}}, "n5": night(at(6, 23))} {
		by[rows[name].Overlay] = m
	}
	if _, text := s.ask("GET", "/windows", nil); !strings.Contains(text, "No node that was read has windows.") {
		t.Errorf("nothing was read:\n%s", text)
	}
	s.server.o.Sent = windowed{by: by}
	_, text := s.ask("GET", "/windows", nil)
	for _, want := range []string{"1 node has no windows.", "The overlays of 1 node are not read yet.", "<h2>2 nodes</h2>", `<a href="/nodes/n1">n1</a> <a href="/nodes/n2">n2</a>`,
		`<th scope="col">Mon 2 Nov</th>`, `<th scope="col">Sun 8 Nov</th>`, "&lt;night&gt;", "Nothing is known from <time", "2026-10-30 00:00:00 UTC</time> to <time datetime=\"2026-11-29T00:00:00Z\">2026-11-29 00:00:00 UTC",
		`<td data-is="Tue 3 Nov"><div><time class="clock" datetime="2026-11-03T22:00:00Z" title="2026-11-03 22:00:00 UTC">22:00</time> to <time class="clock" datetime="2026-11-04T02:00:00Z" title="2026-11-04 02:00:00 UTC">02:00</time></div></td>`, `<td data-is="Sun 8 Nov"><div>`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	for _, not := range []string{"2026-11-02T02:00", "2026-11-10", "<night>"} {
		if strings.Contains(text, not) {
			t.Errorf("%s is in\n%s", not, text)
		}
	}
}
