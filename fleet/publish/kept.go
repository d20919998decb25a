// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"maps"
	"slices"

	"github.com/caisson-os/caisson/oci/trust"
)

// keptRows are nodes that are neither published nor dropped: who they are is in doubt where
// the site is read from.
type keptRows struct {
	names map[string]bool
	tags  map[string]string // the node by what a machine may claim to be it
}

// kept returns the rows that [Options.Keep] asks for.
func (s *selected) kept(nodes []Node) keptRows {
	k := keptRows{map[string]bool{}, map[string]string{}}
	if s.o.Keep == nil {
		return k
	}
	for name, row := range s.rows {
		if !s.o.Keep(name) || slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == name }) {
			continue
		}
		k.names[name] = true
		for _, tag := range trust.AliasTags(row.Match.MACs, row.Match.UUIDs) {
			k.tags[tag] = name
		}
	}
	return k
}

// owner returns the kept node that has one of a node's identifiers, "" where none has: two
// rows must never be found by one machine.
func (k keptRows) owner(n Node) string {
	for _, tag := range trust.AliasTags(n.Match.MACs, n.Match.UUIDs) {
		if of := k.tags[tag]; of != "" {
			return of
		}
	}
	return ""
}

// keep leaves rows as they are, and renews what has to be renewed of them.
func (s *selected) keep(k keptRows) {
	if s.o.Only != nil {
		return // as all others that are not named
	}
	for _, name := range slices.Sorted(maps.Keys(k.names)) {
		row, known := s.rows[name]
		if !known {
			continue
		}
		s.result.Kept = append(s.result.Kept, name)
		if s.o.All || s.isOld(row.Expires, s.policy.Lifetime) || s.v.torn[name] {
			s.held = append(s.held, name)
		}
	}
}
