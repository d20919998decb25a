// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/fleet/view"
)

// column is one of the list of nodes.
type column struct {
	Name   string // as an address chooses it
	Title  string
	Sort   view.Order // "" where lists are not sorted by it
	Class  string
	Usual  bool   // it is there where an address chooses none
	Shown  bool   // it is there
	Link   string // to the list in its order
	Sorted string // as aria-sort has it, "" where the list is sorted by another one
}

// allColumns are in the order of the page. That of names is always there.
var allColumns = []column{
	{Name: "name", Title: "Node", Sort: "name", Usual: true},
	{Name: "condition", Title: "Condition", Sort: "condition", Usual: true},
	{Name: "why", Title: "Why", Usual: true},
	{Name: "health", Title: "Health"},
	{Name: "sync", Title: "Sync"},
	{Name: "activity", Title: "Activity"},
	{Name: "drift", Title: "Drift", Class: "number"},
	{Name: "holds", Title: "Held by"},
	{Name: "generation", Title: "Generation", Sort: "generation", Class: "number", Usual: true},
	{Name: "layer", Title: "Layer", Sort: "layer", Usual: true},
	{Name: "agent", Title: "Agent"},
	{Name: "tpm", Title: "TPM"},
	{Name: "reported", Title: "Reported", Sort: "reported", Usual: true},
}

// columns returns all columns, each with the address of the list in its order; that by which it
// is sorted leads to the same from its other end. Names are those that an address chooses.
func columns(now view.Order, names []string, link func(name, value string) string) ([]column, error) {
	list := slices.Clone(allColumns)
	for _, name := range names {
		if !slices.ContainsFunc(list, func(c column) bool { return c.Name == name }) {
			return list, fmt.Errorf("unknown column %.60q. One of: %s", name, columnNames())
		}
	}
	for i := range list {
		c := &list[i]
		c.Shown = c.Name == "name" || slices.Contains(names, c.Name) || len(names) == 0 && c.Usual
		if c.Sort == "" {
			continue
		}
		to := c.Sort
		if now.By() == c.Sort {
			if c.Sorted = "descending"; !now.Falls() {
				c.Sorted, to = "ascending", "-"+to
			}
		}
		c.Link = link("sort", string(to))
	}
	return list, nil
}

func columnNames() string {
	var names []string
	for _, c := range allColumns {
		names = append(names, c.Name)
	}
	return strings.Join(names, ", ")
}
