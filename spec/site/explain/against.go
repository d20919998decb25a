// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"io"
	"maps"
	"slices"

	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/spec/site/report"
)

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
