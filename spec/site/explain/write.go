// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/report"
)

// Write prints the explanation as a tree: each value with the place it was
// written, and for an overridden one what it replaced.
func (e *Explanation) Write(w io.Writer) {
	labels := plain.Each(slices.Sorted(maps.Keys(e.Labels)), func(k string) string { return k + "=" + report.Printable(e.Labels[k], 60) })
	title := "node " + report.Printable(e.Node, 128)
	if len(labels) > 0 {
		title += " (" + strings.Join(labels, ", ") + ")"
	}
	if !e.Known {
		title += ": not in the site, explained as if it were"
	}
	fmt.Fprintln(w, title)
	if len(e.KernelArgs) > 0 {
		fmt.Fprintf(w, "kernel arguments: %s\n", report.Printable(strings.Join(e.KernelArgs, " "), 400))
	}
	for _, l := range e.lines {
		switch {
		case l.target != "":
			fmt.Fprintf(w, "\n%-52s %s\n", strings.TrimSpace(l.key+" "+l.text), l.target)
		case l.origin == nil:
			fmt.Fprintf(w, "%s%s\n", strings.Repeat("  ", l.depth), keyText(l.key))
		default:
			left := strings.Repeat("  ", l.depth) + keyText(l.key) + " " + report.Printable(l.text, 64)
			fmt.Fprintf(w, "%-52s %s\n", left, l.origin)
		}
	}
	if len(e.Defaults) > 0 {
		fmt.Fprintf(w, "\n%-52s default\n", "not written, but in force")
		for _, k := range slices.Sorted(maps.Keys(e.Defaults)) {
			text := fmt.Sprint(e.Defaults[k])
			if list, ok := e.Defaults[k].([]string); ok {
				text = strings.Join(list, " ")
			}
			fmt.Fprintf(w, "  %s: %s\n", strings.TrimPrefix(k, "/conf/"), text)
		}
	}
}

// String is the place, the override if it was one, and what that replaced.
func (o *Origin) String() string {
	out := "default"
	if o.File != "" {
		out = fmt.Sprintf("%s:%d", o.File, o.Line)
	}
	if o.Source != "base" && o.Source != "default" {
		out += " " + o.Source
		if o.Over != "" {
			out += ", over " + report.Printable(o.Over, 40)
		}
	}
	return out
}

func keyText(key string) string {
	if key == "-" {
		return key
	}
	return report.Printable(key, 64) + ":"
}

// Difference is a setting that two nodes do not share.
type Difference struct {
	Path string   `json:"path"`
	A    *Setting `json:"a,omitempty"` // absent where the node has none
	B    *Setting `json:"b,omitempty"`
}

// Differences are those of two nodes, by path.
type Differences []Difference

// Against returns in what the nodes differ.
func (e *Explanation) Against(other *Explanation) Differences {
	a, b := e.byPath(), other.byPath()
	paths := maps.Clone(a)
	maps.Copy(paths, b)
	list := Differences{}
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for i := range max(len(a[path]), len(b[path])) {
			d := Difference{Path: path, A: at(a[path], i), B: at(b[path], i)}
			if d.A == nil || d.B == nil || d.A.Value != d.B.Value {
				list = append(list, d)
			}
		}
	}
	return list
}

// byPath returns the settings by their path: a list may have one text twice.
func (e *Explanation) byPath() map[string][]Setting {
	m := map[string][]Setting{}
	for _, s := range e.Settings() {
		m[s.Path] = append(m[s.Path], s)
	}
	return m
}

func at(list []Setting, i int) *Setting {
	if i >= len(list) {
		return nil
	}
	return &list[i]
}

// Write prints differences for people: of each setting what the nodes a and b have.
func (d Differences) Write(w io.Writer, a, b string) {
	for _, one := range d {
		var c plain.Columns
		c.Add(append([]string{a}, one.A.cells()...)...)
		c.Add(append([]string{b}, one.B.cells()...)...)
		_, _ = io.WriteString(w, report.Printable(one.Path, 128)+"\n") // the verb ends with what its output could not take
		c.Print(w, "  ")
	}
}

// cells are a value and the place of its origin.
func (s *Setting) cells() []string {
	if s == nil {
		return []string{"not set", ""}
	}
	origin := ""
	if s.Origin != nil {
		origin = s.Origin.String()
	}
	return []string{report.Printable(s.Value, 64), origin}
}
