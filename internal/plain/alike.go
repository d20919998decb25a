// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"io"
	"strings"
)

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
	cells := strings.Split(says, "\t")
	for i := range cells {
		cells[i] = Line(cells[i])
	}
	_, _ = io.WriteString(w, indent+Line(name)+"\t"+strings.Join(cells, "\t")+"\n") // as cli.Printf prints
}
