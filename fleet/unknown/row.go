// SPDX-License-Identifier: Apache-2.0

package unknown

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
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

// ID is by what a machine is asked for: its first MAC address, or its UUID; "" where it said neither.
func (m Machine) ID() string {
	return slices.Concat(m.MACs, m.UUIDs, []string{""})[0]
}

// Find returns the machine with a MAC address or a UUID. One that asked from two addresses is one; where
// others asked by the same identifier, which anybody can, nobody is chosen.
func Find(list []Machine, id string) (Machine, error) {
	var found *Machine
	var known []string
	for _, m := range list {
		if m.ID() != "" {
			known = append(known, m.ID())
		}
		if !slices.Contains(m.MACs, strings.ToLower(id)) && !slices.Contains(m.UUIDs, strings.ToLower(id)) {
			continue
		}
		if found != nil && !m.like(*found) {
			return Machine{}, cli.Usage("look at the machine, and name it by --mac and --uuid",
				"two machines asked by %s, from %s and from %s, with other identifiers beside it", id, found.From, m.From)
		}
		if found == nil || m.Last.After(found.Last) {
			found = &m
		}
	}
	if found == nil {
		hint := "none has asked by an address or a UUID"
		if len(known) > 0 {
			hint = "those that asked: " + plain.Some(known, 5)
		}
		return Machine{}, cli.Usage(hint, "no unknown machine has asked by %.60q", id)
	}
	return *found, nil
}

// like reports whether two machines said the same of themselves; names count where they said nothing else.
func (m Machine) like(other Machine) bool {
	same := func(a, b []string) bool {
		return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
	}
	return same(m.MACs, other.MACs) && same(m.UUIDs, other.UUIDs) && (m.ID() != "" || same(m.Names, other.Names))
}

// For sorts machines for a node: those that asked by its name first, then those that asked last.
func For(list []Machine, node string) []Machine {
	rank := func(m Machine) int {
		if slices.Contains(m.Names, node) {
			return 0
		}
		return 1
	}
	list = slices.DeleteFunc(slices.Clone(list), func(m Machine) bool { return m.ID() == "" })
	slices.SortStableFunc(list, func(a, b Machine) int { return cmp.Or(rank(a)-rank(b), b.Last.Compare(a.Last)) })
	return list
}

// Says tells in one line by what it asked, and from where.
func (m Machine) Says() string {
	return fmt.Sprintf("%s from %s", strings.Join(slices.Concat(m.MACs, m.UUIDs, m.Names), " "), m.From)
}
