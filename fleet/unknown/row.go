// SPDX-License-Identifier: Apache-2.0

package unknown

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Row is a machine with its line for nodes: of a site.
type Row struct {
	Machine
	Node string `json:"node"`
}

// Rows returns the rows of machines, which together are nodes that a site takes: one each, also of a
// machine that asked from two addresses. Of equal names who asked first has it as it is. Where machines
// share an address or a UUID, which anybody can say, their rows are comments.
func Rows(list []Machine) []Row {
	rows, asked, taken := []Row{}, map[string]int{}, map[string]bool{} // by a MAC address or a UUID; by name
	list = slices.Clone(list)
	sort(list)
	for _, m := range slices.Backward(list) { // the first questions last
		i := slices.IndexFunc(rows, func(r Row) bool { return m.like(r.Machine) })
		if i >= 0 && rows[i].First.Before(m.First) {
			m.First = rows[i].First
		}
		if i >= 0 {
			rows = slices.Delete(rows, i, i+1)
		}
		rows = append(rows, Row{Machine: m})
	}
	slices.Reverse(rows)
	first := make([]*Row, len(rows))
	for i := range rows {
		first[i] = &rows[i]
		for _, id := range slices.Concat(rows[i].MACs, rows[i].UUIDs) {
			asked[id]++
		}
	}
	slices.SortStableFunc(first, func(a, b *Row) int { return a.First.Compare(b.First) })
	for _, r := range first {
		name := r.name()
		for n := 2; taken[name]; n++ {
			name = fmt.Sprintf("%.58s-%d", r.name(), n)
		}
		taken[name] = true
		r.Node = r.line(name)
		ids := slices.Concat(r.MACs, r.UUIDs)
		if i := slices.IndexFunc(ids, func(id string) bool { return asked[id] > 1 }); i >= 0 {
			r.Node = fmt.Sprintf("# %s # another asked by %s, too", r.Node, ids[i])
		}
	}
	return rows
}

// Node returns the machine as a line of a site's nodes, under the name that it asked by where a
// node may have that, and else under one made of its hardware; "new" where it said none.
func (m Machine) Node() string { return m.line(m.name()) }

func (m Machine) line(name string) string {
	var match []string
	if len(m.MACs) > 0 {
		match = append(match, fmt.Sprintf("macs: [%s]", quoted(m.MACs)))
	}
	if len(m.UUIDs) > 0 {
		match = append(match, fmt.Sprintf("uuids: [%s]", quoted(m.UUIDs)))
	}
	if match == nil {
		return fmt.Sprintf("- {name: %s}", name)
	}
	return fmt.Sprintf("- {name: %s, match: {%s}}", name, strings.Join(match, ", "))
}

// nodeName is a name that a node may have, without words that YAML reads otherwise.
var nodeName = regexp.MustCompile(`^[a-z][a-z0-9-]{2,61}[a-z0-9]$`)

func (m Machine) name() string {
	for _, name := range m.Names {
		if nodeName.MatchString(name) && !slices.Contains([]string{"true", "null"}, name) &&
			!strings.HasPrefix(name, "mac-") && !strings.HasPrefix(name, "uuid-") {
			return name
		}
	}
	switch {
	case len(m.MACs) > 0:
		return "new-" + strings.ReplaceAll(m.MACs[0], ":", "")
	case len(m.UUIDs) > 0:
		return "new-" + m.UUIDs[0]
	}
	return "new"
}

func quoted(list []string) string { return `"` + strings.Join(list, `", "`) + `"` }
