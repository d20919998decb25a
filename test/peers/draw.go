// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// rows are what is shown of a run.
var rows = []struct {
	name string
	of   func(life) *step
}{
	{"from nothing", func(l life) *step { return &l.Apply }},
	{"nothing to do", func(l life) *step { return &l.Again }},
	{"two changed by hand", func(l life) *step { return &l.Mend }},
	{"all taken back", func(l life) *step { return l.Back }},
}

// spread is the smallest, the median and the largest of some values.
type spread struct{ min, median, max float64 }

func spreadOf(values []float64) spread {
	slices.Sort(values)
	return spread{values[0], values[len(values)/2], values[len(values)-1]}
}

// of returns the spread of one value of a peer's runs; no value where it has none.
func of(lives []life, peer string, which func(life) *step, value func(step) float64) (spread, bool) {
	var values []float64
	for _, l := range lives {
		if s := which(l); l.Peer == peer && s != nil {
			values = append(values, value(*s))
		}
	}
	if len(values) == 0 {
		return spread{}, false
	}
	return spreadOf(values), true
}

// table prints all rows.
func table(to io.Writer, those []peer, lives []life) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(w, "%s\tseconds: min, median, max\tprocessor\tpeak MiB\tnot as wanted\n", row.name)
		for _, p := range those {
			seconds, some := of(lives, p.name, row.of, func(s step) float64 { return s.Seconds })
			if !some {
				fmt.Fprintf(w, "  %s\tcannot\t\t\t\n", p.name)
				continue
			}
			processor, _ := of(lives, p.name, row.of, func(s step) float64 { return s.Processor })
			memory, _ := of(lives, p.name, row.of, func(s step) float64 { return float64(s.Memory) / 1024 })
			missing, _ := of(lives, p.name, row.of, func(s step) float64 { return float64(s.Missing) })
			fmt.Fprintf(w, "  %s\t%.2f %.2f %.2f\t%.2f\t%.0f\t%.0f\n", p.name, seconds.min, seconds.median, seconds.max, processor.median, memory.median, missing.median)
		}
	}
	return w.Flush()
}

// draw returns the rows as an SVG: a bar is the median of the clock, on a scale of powers of
// ten, the line through its end the smallest and the largest.
func draw(those []peer, lives []life) []byte {
	const left, width, line, from, decades = 150, 560, 22, 0.01, 5 // 10 ms to 1,000 s
	at := func(seconds float64) float64 { return left + width/decades*math.Log10(max(seconds, from)/from) }
	var b bytes.Buffer
	height := 40 + len(rows)*(len(those)+2)*line
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="13" fill="#12212f">`+"\n", left+width+90, height)
	for d := range decades + 1 {
		x := at(from * math.Pow(10, float64(d)))
		fmt.Fprintf(&b, `<line x1="%.0f" y1="20" x2="%.0f" y2="%d" stroke="#c8d0d8"/><text x="%.0f" y="14" text-anchor="middle">%g s</text>`+"\n", x, x, height-10, x, from*math.Pow(10, float64(d)))
	}
	y := 40
	for _, row := range rows {
		fmt.Fprintf(&b, `<text x="4" y="%d" font-weight="bold">%s</text>`+"\n", y, row.name)
		for _, p := range those {
			y += line
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y, p.name)
			s, some := of(lives, p.name, row.of, func(s step) float64 { return s.Seconds })
			if !some {
				fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#7a2418">cannot</text>`+"\n", left+4, y)
				continue
			}
			missing, _ := of(lives, p.name, row.of, func(s step) float64 { return float64(s.Missing) })
			fill, note := "#4a7fb5", ""
			if p.name == "caisson" {
				fill = "#2f7d4f"
			}
			if missing.median > 0 && row.name != "all taken back" {
				fill, note = "#b9a44c", fmt.Sprintf(", %.0f not as wanted", missing.median)
			}
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="13" fill="%s"/><line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#12212f"/><text x="%.1f" y="%d">%.2f s%s</text>`+"\n",
				left, y-11, at(s.median)-left, fill, at(s.min), y-4, at(s.max), y-4, at(s.max)+6, y, s.median, note)
		}
		y += 2 * line
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
