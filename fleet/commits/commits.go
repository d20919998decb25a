// SPDX-License-Identifier: Apache-2.0

// Package commits remembers which commits of services the overlays of a fleet bring.
//
// They are in the overlays alone, one a node, so they are read a few at a time and each
// once. Only what passed every check of fleet/publish counts. cmd/caisson imports it.
package commits

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// Fleet is where overlays are read, verified.
type Fleet interface {
	Overlay(ctx context.Context, node string) (*spec.Overlay, error)
}

// Sent holds what was read. The zero value has read nothing.
type Sent struct {
	mu      sync.RWMutex
	by      map[string]map[string]string // by overlay's digest, by service
	refused map[string]error             // by overlay's digest
	left    int
	trouble error
}

// How many overlays are to be read at a time: a registry has nodes to answer, too, and
// what is new is shown before they are all read.
const (
	AtFirst = 20
	AtOnce  = 200
)

// Read reads so many overlays of these nodes that were not read yet, and forgets those
// that are published no more.
func (s *Sent) Read(ctx context.Context, f Fleet, rows index.Rows, nodes []string, most int) {
	s.mu.RLock()
	by, refused := map[string]map[string]string{}, map[string]error{}
	same := map[string]map[string]string{} // nodes of one kind have one map
	todo := []string{}
	for _, node := range nodes {
		row, ok := rows[node]
		if !ok {
			continue
		}
		if had, ok := s.by[row.Overlay]; ok {
			by[row.Overlay], same[text(had)] = had, had
		} else if err := s.refused[row.Overlay]; err != nil {
			refused[row.Overlay] = err
		} else {
			todo = append(todo, node)
		}
	}
	s.mu.RUnlock()
	var trouble error
	read := 0
	for _, node := range todo[:min(len(todo), most)] {
		o, err := f.Overlay(ctx, node)
		digest := rows[node].Overlay
		if err != nil && (refusal.Of(err) != "" || errors.Is(err, oci.ErrNotFound)) {
			refused[digest] = err // it will be no better: the others are read
		} else if err != nil {
			trouble = err
			break
		} else {
			by[digest] = shared(same, o.Services)
		}
		read++
	}
	for _, err := range refused { // one says enough
		trouble = errors.Join(trouble, err)
		break
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.by, s.refused, s.left, s.trouble = by, refused, len(todo)-read, trouble
}

func shared(same map[string]map[string]string, list []spec.Service) map[string]string {
	m := make(map[string]string, len(list))
	for _, v := range list {
		m[v.Name] = v.Commit
	}
	if had, ok := same[text(m)]; ok {
		return had
	}
	same[text(m)] = m
	return m
}

func text(m map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(m)) {
		b.WriteString(name + " " + m[name] + "\n")
	}
	return b.String()
}

// Services returns the commits that an overlay brings, by service, and whether it was
// read. The map is only read.
func (s *Sent) Services(overlay string) (commits map[string]string, read bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	commits, read = s.by[overlay]
	return commits, read
}

// Left returns how many overlays are still to be read, and what was in the way of one.
func (s *Sent) Left() (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.left, s.trouble
}
