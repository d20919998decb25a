// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"cmp"
	"io"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"
)

// Natural compares two names as people count: node2 is before node10, and r9-3 before
// r10-1. Digits are compared as numbers of any length; where two names are then alike, as
// n1 and n01 are, their bytes decide.
func Natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		m, n := digits(x), digits(y)
		if m > 0 && n > 0 {
			p, q := strings.TrimLeft(x[:m], "0"), strings.TrimLeft(y[:n], "0")
			if c := cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q)); c != 0 {
				return c
			}
			x, y = x[m:], y[n:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// digits is how many digits a text begins with.
func digits(text string) int {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return i
		}
	}
	return len(text)
}

// Names returns names in the order of [Natural].
func Names(names iter.Seq[string]) []string { return slices.SortedFunc(names, Natural) }

// Each returns what say makes of each of a list, nil of none.
func Each[T, U any](list []T, say func(T) U) (all []U) {
	for _, one := range list {
		all = append(all, say(one))
	}
	return all
}

// Pick is [Each] of those of a list of which pick reports true.
func Pick[T, U any](list []T, pick func(T) (U, bool)) (all []U) {
	for _, one := range list {
		if u, ok := pick(one); ok {
			all = append(all, u)
		}
	}
	return all
}

// First returns the first of a list that fits, the zero value where none does.
func First[T any](list []T, fits func(T) bool) (first T) {
	if i := slices.IndexFunc(list, fits); i >= 0 {
		first = list[i]
	}
	return first
}

// Map returns what of makes of each of a list, as a key and a value; of one key the last counts.
func Map[T any, K comparable, V any](list []T, of func(T) (K, V)) map[K]V {
	m := make(map[K]V, len(list))
	for _, one := range list {
		k, v := of(one)
		m[k] = v
	}
	return m
}

// Columns print rows whose cells stand below each other. A cell that is much longer than
// those around it moves the rest of its own row, and no other.
type Columns struct{ rows [][]string }

// Add takes a row; each cell as it is printed, by itself.
func (c *Columns) Add(cells ...string) {
	c.rows = append(c.rows, Each(cells, Line))
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

// Nearest returns the known word that is at most two edits from got, the nearest one,
// or "". Hyphens, underscores, dots and case do not count.
func Nearest(got string, known iter.Seq[string]) string {
	best, least := "", 3
	folded := fold(got)
	for k := range known {
		d := distance(strings.ToLower(got), strings.ToLower(k), least)
		if folded == fold(k) {
			d = 0
		}
		if d < least && d < max(min(len(got), len(k)), 2) {
			best, least = k, d
		}
	}
	return best
}

// DidYouMean asks whether the nearest known word was meant, "" where none is near.
func DidYouMean(got string, known iter.Seq[string]) string {
	if like := Nearest(got, known); like != "" {
		return "did you mean " + like + "?"
	}
	return ""
}

var separators = strings.NewReplacer("-", "", "_", "", ".", "")

func fold(word string) string { return separators.Replace(strings.ToLower(word)) }

// distance is the number of edits between a and b, or limit when there are more.
func distance(a, b string, limit int) int {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		prev := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := prev
			if a[i] != b[j] {
				cost++
			}
			prev = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}

// Few is how many of a kind people are shown one by one.
const Few = 8

// Alike prints nodes, those of which the same is to be said together where they are many.
type Alike struct {
	groups []*sameNodes
	by     map[string]*sameNodes
}

// sameNodes are nodes of which the same is said.
type sameNodes struct {
	says  string // of all
	names []string
	each  []string // said of one alone
}

// Add takes a node: what is said of it in a line of its own, and what of it among others. Tabs
// divide columns.
func (x *Alike) Add(node, each, says string) {
	g := x.by[says]
	if g == nil {
		g = &sameNodes{says: says}
		if x.groups = append(x.groups, g); x.by == nil {
			x.by = map[string]*sameNodes{}
		}
		x.by[says] = g
	}
	g.names, g.each = append(g.names, node), append(g.each, each)
}

// Print prints the nodes, each line after an indent.
func (x *Alike) Print(w io.Writer, indent string) {
	for _, g := range x.groups {
		if len(g.names) > Few {
			printRow(w, indent, Count(len(g.names), "node"), g.says)
			_, _ = io.WriteString(w, Sprintf("%s  %s\n", indent, Some(g.names, Few))) // as cli.Printf prints
			continue
		}
		for i, name := range g.names {
			printRow(w, indent, name, g.each[i])
		}
	}
}

// printRow prints a name and what is said of it, in columns that tabs divide.
func printRow(w io.Writer, indent, name, says string) {
	cells := strings.Join(Each(strings.Split(says, "\t"), Line), "\t")
	_, _ = io.WriteString(w, indent+Line(name)+"\t"+cells+"\n") // as cli.Printf prints
}
