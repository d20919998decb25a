// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/internal/stall"
	"github.com/caisson-os/caisson/spec/site/service"
)

// Heads remembers which commits git has for the services of a site.
//
// Servers of git are asked one after the other, each service now and then, and are not waited for by
// readers of their last answer.
type Heads struct {
	Ask   func(ctx context.Context, s *service.Service) (commit string, err error)
	Every time.Duration // between two questions about one service
	Wait  time.Duration // for one answer

	mu sync.RWMutex
	by map[string]known
}

type known struct {
	query.Head
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
func (h *Heads) Head(s *service.Service) (query.Head, bool) {
	one, ok := h.known(s)
	return one.Head, ok
}

// AskGit returns who asks git what the services of a site follow now, as 'services diff' does.
func AskGit(open func() (*content.Source, error)) *Heads {
	return &Heads{Every: gitEvery, Wait: content.Glance.Time, Ask: func(ctx context.Context, s *service.Service) (string, error) {
		source, err := open()
		if err != nil {
			return "", err
		}
		source.Limits = content.Glance
		head, err := source.Head(ctx, s)
		return head.ID, err
	}}
}
