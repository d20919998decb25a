// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
)

// overlays are those of a fleet, verified.
type overlays interface {
	Overlay(ctx context.Context, node string) (*spec.Overlay, error)
}

// Sent remembers which commits of services and which windows the overlays of a fleet bring. The zero
// value has read nothing.
//
// They are in the overlays alone, one a node, so they are read a few at a time and each once. Only what
// passed every check of fleet/publish counts.
type Sent struct {
	mu      sync.RWMutex
	by      map[string]brought // by overlay's digest
	refused map[string]error   // by overlay's digest
	left    int
	trouble error
}

// brought holds what one overlay brings.
type brought struct {
	services map[string]string // commits, by name
	windows  *spec.Maintenance // without operations; nil where there are none
	calendar string            // is the same of windows that open alike
}

// How many overlays are to be read at a time: a registry has nodes to answer, too, and
// what is new is shown before they are all read.
const (
	atFirst = 20
	atOnce  = 200
)

// Read reads so many overlays of these nodes that were not read yet, and forgets those
// that are published no more.
func (s *Sent) Read(ctx context.Context, f overlays, rows index.Rows, nodes []string, most int) {
	s.mu.RLock()
	by, refused := map[string]brought{}, map[string]error{}
	services, windows := map[string]map[string]string{}, map[string]*spec.Maintenance{} // nodes of one kind have one
	todo := []string{}
	for _, node := range nodes {
		row, ok := rows[node]
		if !ok {
			continue
		}
		if had, ok := s.by[row.Overlay]; ok {
			by[row.Overlay] = brought{once(services, text(had.services), had.services), once(windows, had.calendar, had.windows), had.calendar}
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
			m := plain.Map(o.Services, func(v spec.Service) (string, string) { return v.Name, v.Commit })
			w := windowsOf(o.Maintenance)
			opens := calendar(w)
			by[digest] = brought{once(services, text(m), m), once(windows, opens, w), opens}
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

// once returns what was kept of a text first.
func once[T any](same map[string]T, text string, made T) T {
	if had, ok := same[text]; ok {
		return had
	}
	same[text] = made
	return made
}

func windowsOf(m *spec.Maintenance) *spec.Maintenance {
	if m == nil || len(m.Windows) == 0 {
		return nil
	}
	return &spec.Maintenance{Horizon: m.Horizon, Windows: m.Windows}
}

// calendar names windows by when they open.
func calendar(m *spec.Maintenance) string {
	if m == nil {
		return ""
	}
	return oci.Digest(fmt.Append(nil, m.Horizon, m.Windows)) // fmt sorts the keys of a map
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
	b, read := s.of(overlay)
	return b.services, read
}

// Windows returns the windows that an overlay brings, nil where there are none, and whether it was
// read. They are only read.
func (s *Sent) Windows(overlay string) (m *spec.Maintenance, read bool) {
	b, read := s.of(overlay)
	return b.windows, read
}

func (s *Sent) of(overlay string) (brought, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	b, read := s.by[overlay]
	return b, read
}

// Left returns how many overlays are still to be read, and what was in the way of one.
func (s *Sent) Left() (int, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.left, s.trouble
}
