// SPDX-License-Identifier: Apache-2.0

// Package commits remembers which commits of services and which windows the overlays of a fleet bring,
// and which commits git has for the services of its site.
//
// The former are in the overlays alone, one a node, so they are read a few at a time and each
// once. Only what passed every check of fleet/publish counts. Servers of git are asked one after
// the other, each service now and then, and are not waited for by readers of their last answer.
package commits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/index"
	"github.com/caisson-os/caisson/internal/plain"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/oci"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/refusal"
	"github.com/caisson-os/caisson/spec/site/service"
)

// Fleet is where overlays are read, verified.
type Fleet interface {
	Overlay(ctx context.Context, node string) (*spec.Overlay, error)
}

// Sent holds what was read. The zero value has read nothing.
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
	AtFirst = 20
	AtOnce  = 200
)

// Read reads so many overlays of these nodes that were not read yet, and forgets those
// that are published no more.
func (s *Sent) Read(ctx context.Context, f Fleet, rows index.Rows, nodes []string, most int) {
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

// Head holds what git said of a service.
type Head struct {
	Commit  string    // "" before the first answer
	At      time.Time // of that answer
	Trouble error     // why there was none since
}

// Heads asks, and remembers.
type Heads struct {
	Ask   func(ctx context.Context, s *service.Service) (commit string, err error)
	Every time.Duration // between two questions about one service
	Wait  time.Duration // for one answer

	mu sync.RWMutex
	by map[string]known
}

type known struct {
	Head
	asked time.Time
}

// key returns what a commit follows from: another one is another question.
func key(s *service.Service) string {
	return s.Git.URL + "\n" + s.Git.Ref() + "\n" + strings.Join(s.From(), "\n")
}

// Look asks for those services whose time has come, and forgets those that are not there.
func (h *Heads) Look(ctx context.Context, services []service.Service, now time.Time) {
	there := map[string]bool{}
	for i := range services {
		s := &services[i]
		there[key(s)] = true
		one, ok := h.known(s)
		if ok && now.Sub(one.asked) < h.Every {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, h.Wait)
		commit, err := h.Ask(asking, s)
		cancel()
		if ctx.Err() != nil {
			return
		}
		one.asked = now
		if one.Trouble = err; err == nil {
			one.Commit, one.At = commit, now
		}
		h.mu.Lock()
		if h.by == nil {
			h.by = map[string]known{}
		}
		h.by[key(s)] = one
		h.mu.Unlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.by, func(k string, _ known) bool { return !there[k] })
}

// Keep looks until ctx ends, again after so long; services returns those of now.
func (h *Heads) Keep(ctx context.Context, every time.Duration, services func() []service.Service) {
	for h.Look(ctx, services(), time.Now()); stall.Rest(ctx, every) == nil; {
		h.Look(ctx, services(), time.Now())
	}
}

func (h *Heads) known(s *service.Service) (known, bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	one, ok := h.by[key(s)]
	return one, ok
}

// Head returns what git said of a service last, and whether it was asked.
func (h *Heads) Head(s *service.Service) (Head, bool) {
	one, ok := h.known(s)
	return one.Head, ok
}
