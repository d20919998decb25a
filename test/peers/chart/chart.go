// SPDX-License-Identifier: Apache-2.0

// Package chart shows what was measured: as JSON, as a table, as a page, and drawn as an SVG.
package chart

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Row is one thing that peers had to do, or one quantity of it.
type Row struct {
	Name string
	Unit string
	Bars []Bar
}

// Bar is what it took one peer.
type Bar struct {
	Peer   string
	Values []float64 // of all runs; the peer cannot do it where there are none
	Note   string    // a fault of the result, as "other bytes"
	More   string    // not drawn
}

// spread is the smallest, the median and the largest of some values.
type spread struct{ min, median, max float64 }

func spreadOf(values []float64) spread {
	values = slices.Sorted(slices.Values(values))
	return spread{values[0], values[len(values)/2], values[len(values)-1]}
}

// Median returns the median of some values.
func Median(values []float64) float64 { return spreadOf(values).median }

// Table prints all rows.
func Table(to io.Writer, rows []Row) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintf(w, "%s\t%s: min, median, max\t\t\n", row.Name, row.Unit)
		for _, b := range row.Bars {
			if len(b.Values) == 0 {
				fmt.Fprintf(w, "  %s\tcannot\t\t\n", b.Peer)
				continue
			}
			s := spreadOf(b.Values)
			fmt.Fprintf(w, "  %s\t%.2f %.2f %.2f\t%s\t%s\n", b.Peer, s.min, s.median, s.max, b.More, b.Note)
		}
	}
	return w.Flush()
}

// Draw returns the rows as an SVG: a bar is the median, on a scale of powers of ten, the line
// through its end the smallest and the largest.
func Draw(rows []Row) []byte {
	const left, width, line, from, decades = 150, 560, 22, 0.01, 5
	at := func(value float64) float64 { return left + width/decades*math.Log10(max(value, from)/from) }
	var b bytes.Buffer
	height := 40
	for _, row := range rows {
		height += (len(row.Bars) + 2) * line
	}
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d"`, left+width+90, height)
	b.WriteString(` font-family="sans-serif" font-size="13" fill="#12212f">` + "\n")
	for d := range decades + 1 {
		value := from * math.Pow(10, float64(d))
		fmt.Fprintf(&b, `<line x1="%.0f" y1="20" x2="%.0[1]f" y2="%[2]d" stroke="#c8d0d8"/>`, at(value), height-10)
		fmt.Fprintf(&b, `<text x="%.0f" y="14" text-anchor="middle">%g</text>`+"\n", at(value), value)
	}
	y := 40
	for _, row := range rows {
		fmt.Fprintf(&b, `<text x="4" y="%d" font-weight="bold">%s</text>`+"\n", y, html.EscapeString(row.Name))
		for _, bar := range row.Bars {
			y += line
			fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`, left-8, y, html.EscapeString(bar.Peer))
			if len(bar.Values) == 0 {
				fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#7a2418">cannot</text>`+"\n", left+4, y)
				continue
			}
			s, fill := spreadOf(bar.Values), "#4a7fb5"
			if strings.HasPrefix(bar.Peer, "caisson") {
				fill = "#2f7d4f"
			}
			said := fmt.Sprintf("%.2f %s", s.median, row.Unit)
			if bar.Note != "" {
				fill, said = "#b9a44c", said+", "+bar.Note
			}
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="13" fill="%s"/>`, left, y-11, at(s.median)-left, fill)
			fmt.Fprintf(&b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%[2]d" stroke="#12212f"/>`, at(s.min), y-4, at(s.max))
			fmt.Fprintf(&b, `<text x="%.1f" y="%d">%s</text>`+"\n", at(s.max)+6, y, html.EscapeString(said))
		}
		y += 2 * line
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// Peer is who was measured.
type Peer struct{ Name, Version string }

// Kind is a quantity of a run.
type Kind[Run any] struct {
	Name, Unit string
	Of         func(Run) float64
	Note       func(Run) string // nil: there is never any
}

// Peers returns those that were measured, each once.
func Peers[Run any](runs []Run, who func(Run) Peer) (peers []Peer) {
	for _, r := range runs {
		if p := who(r); !slices.Contains(peers, p) {
			peers = append(peers, p)
		}
	}
	return peers
}

// Rows returns a row for each quantity, with a bar for each peer.
func Rows[Run any](runs []Run, who func(Run) Peer, kinds []Kind[Run]) (rows []Row) {
	for _, kind := range kinds {
		row := Row{Name: kind.Name, Unit: kind.Unit}
		for _, p := range Peers(runs, who) {
			bar := Bar{Peer: p.Name}
			for _, r := range runs {
				if who(r) != p {
					continue
				}
				bar.Values = append(bar.Values, kind.Of(r))
				if kind.Note != nil && bar.Note == "" {
					bar.Note = kind.Note(r)
				}
			}
			row.Bars = append(row.Bars, bar)
		}
		rows = append(rows, row)
	}
	return rows
}

// Page returns the rows as a page of Markdown with the chart of the same name.
func Page(name, on string, peers []Peer, rows []Row) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# %s\n\n`make bench-peers SIDE=%s` wrote this page on %s. "+
		"[What is unfair to whom](../benchmark.md#what-is-unfair-and-to-whom). A value is the median,\n"+
		"and in brackets stand the smallest and the largest; `cannot` says that there is no such act.\n\n"+
		"![%[1]s](%[2]s.svg)\n\n|",
		strings.ToUpper(name[:1])+name[1:], name, on)
	for _, p := range peers {
		fmt.Fprintf(&b, " | %s", p.Name)
	}
	b.WriteString(" |\n|---" + strings.Repeat("|---", len(peers)) + "|\n")
	for _, row := range rows {
		fmt.Fprintf(&b, "| %s, %s", row.Name, row.Unit)
		for _, p := range peers {
			b.WriteString(" | " + cell(row, p.Name))
		}
		b.WriteString(" |\n")
	}
	b.WriteString("\n| peer | version |\n|---|---|\n")
	for _, p := range peers {
		fmt.Fprintf(&b, "| %s | %s |\n", p.Name, strings.TrimSpace(p.Version))
	}
	return b.Bytes()
}

// cell is what one peer has in a row of a page.
func cell(row Row, peer string) string {
	n := slices.IndexFunc(row.Bars, func(b Bar) bool { return b.Peer == peer })
	if n < 0 {
		return "–"
	}
	bar := row.Bars[n]
	if len(bar.Values) == 0 {
		return "cannot"
	}
	s := spreadOf(bar.Values)
	said := fmt.Sprintf("%.2f (%.2f–%.2f)", s.median, s.min, s.max)
	for _, more := range []string{bar.Note, bar.More} {
		if more != "" {
			said += ", " + more
		}
	}
	return said
}

// Write writes runs as JSON, with what they were measured on, their chart and their page below
// dir, and prints their table.
func Write(dir, name string, runs any, peers []Peer, rows []Row) error {
	kernel, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	date, system := time.Now().UTC().Format(time.DateOnly), strings.TrimSpace(string(kernel))
	long := strings.Fields(string(load))[2] // of the last 15 minutes
	text, err := json.MarshalIndent(map[string]any{"date": date, "kernel": system, "processors": runtime.NumCPU(), "load": long,
		"runs": runs}, "", " ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	on := fmt.Sprintf("%s, on %d processors with a load of %s in its last\n15 minutes", date, runtime.NumCPU(), long)
	at := filepath.Join(dir, name)
	return errors.Join(os.WriteFile(at+".json", append(text, '\n'), 0o644), os.WriteFile(at+".svg", Draw(rows), 0o644),
		os.WriteFile(at+".md", Page(name, on, peers, rows), 0o644), Table(os.Stdout, rows))
}
