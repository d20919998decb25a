// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Columns print rows whose cells stand below each other. A cell that is much longer than
// those around it moves the rest of its own row, and no other.
type Columns struct{ rows [][]string }

// Add takes a row; each cell as it is printed, by itself.
func (c *Columns) Add(cells ...string) {
	for i := range cells {
		cells[i] = Line(cells[i])
	}
	c.rows = append(c.rows, cells)
}

// widest is the longest cell that makes others wider.
const widest = 36

// Print prints the rows, each after an indent, and forgets them.
func (c *Columns) Print(w io.Writer, indent string) {
	var widths []int
	for _, row := range c.rows {
		for i, cell := range row[:max(0, len(row)-1)] { // nothing follows the last
			if i == len(widths) {
				widths = append(widths, 0)
			}
			if n := utf8.RuneCountInString(cell); n <= widest {
				widths[i] = max(widths[i], n)
			}
		}
	}
	for _, row := range c.rows {
		line := indent
		for i, cell := range row {
			line += cell
			if i < len(row)-1 {
				line += strings.Repeat(" ", max(0, widths[i]-utf8.RuneCountInString(cell))+2)
			}
		}
		_, _ = io.WriteString(w, Sprintf("%s\n", strings.TrimRight(line, " "))) // as cli.Printf prints
	}
	c.rows = nil
}

// Empty reports whether no row was added since the last print.
func (c *Columns) Empty() bool { return len(c.rows) == 0 }
