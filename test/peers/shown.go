// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/caisson-os/caisson/test/peers/chart"
)

// acts are what each peer does in its life.
var acts = []struct {
	name string
	of   func(life) *step
}{
	{"from nothing", func(l life) *step { return &l.Apply }},
	{"nothing to do", func(l life) *step { return &l.Again }},
	{"two changed by hand", func(l life) *step { return &l.Mend }},
	{"all taken back", func(l life) *step { return l.Back }},
}

// who is the peer of a run.
func (l life) who() chart.Peer { return chart.Peer{Name: l.Peer, Version: l.Version} }

// shown returns a row for each act.
func shown(those []peer, lives []life) (rows []chart.Row) {
	for _, act := range acts {
		row := chart.Row{Name: act.name, Unit: "s"}
		for _, p := range those {
			bar := chart.Bar{Peer: p.name}
			var processor, memory, missing []float64
			for _, l := range lives {
				if s := act.of(l); l.Peer == p.name && l.Killed == nil && s != nil {
					bar.Values = append(bar.Values, s.Seconds)
					processor = append(processor, s.Processor)
					memory = append(memory, float64(s.Memory)/1024)
					missing = append(missing, float64(s.Missing))
				}
			}
			if len(bar.Values) > 0 {
				bar.More = fmt.Sprintf("processor %.2f s, peak %.0f MiB", chart.Median(processor), chart.Median(memory))
				if m := chart.Median(missing); m > 0 && act.name != "all taken back" {
					bar.Note = fmt.Sprintf("%.0f not as wanted", m)
				}
			}
			row.Bars = append(row.Bars, bar)
		}
		rows = append(rows, row)
	}
	return append(rows, killed(those, lives))
}

// killed returns a row of what kills left: files with other content than they are to have, and,
// after another run, settings that are not in effect.
func killed(those []peer, lives []life) chart.Row {
	row := chart.Row{Name: "killed: torn files", Unit: "files"}
	for _, p := range those {
		bar, most, after, less := chart.Bar{Peer: p.name}, 0, 0, 0
		for _, l := range lives {
			if l.Peer == p.name && l.Killed != nil {
				bar.Values = append(bar.Values, float64(l.Killed.Torn))
				most, after = max(most, l.Apply.Missing), max(after, l.Again.Missing)
				if l.Apply.Missing > 0 {
					less++
				}
			}
		}
		if most > 0 {
			bar.Note = fmt.Sprintf("%d not as wanted after the next run, after %d of %d kills", most, less, len(bar.Values))
			if p.retry != "" {
				bar.Note += fmt.Sprintf("; %d after an operator's word", after)
			}
		}
		if n := len(bar.Values); n > 0 && n < kills {
			bar.More = fmt.Sprintf("%d of %d kills", n, kills)
		}
		if len(bar.Values) > 0 {
			row.Bars = append(row.Bars, bar)
		}
	}
	return row
}
