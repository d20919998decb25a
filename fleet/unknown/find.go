// SPDX-License-Identifier: Apache-2.0

package unknown

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caisson-os/caisson/internal/cli"
	"github.com/caisson-os/caisson/internal/plain"
)

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
