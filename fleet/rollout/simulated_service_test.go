// SPDX-License-Identifier: Apache-2.0

package rollout_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/caisson-os/caisson/fleet/hub"
	"github.com/caisson-os/caisson/fleet/published"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/fleet/report"
	"github.com/caisson-os/caisson/fleet/rollout"
	"github.com/caisson-os/caisson/fleet/server"
	"github.com/caisson-os/caisson/fleet/store"
)

// slotGroup is the group of slots, and slotsAtOnce how many it has: more than any budget.
const (
	slotGroup   = "default"
	slotsAtOnce = 12
)

// service is the fleet's service over a database that outlives it.
type service struct {
	w    *world
	file string // of SQLite
	hub  *hub.Hub
	next http.Handler
	stop func()
}

var errAway = errors.New("connection refused")

func (s *service) start() {
	s.w.Helper()
	db, err := store.Open(s.w.Context(), "sqlite:"+s.file)
	must(s.w, err)
	say := func(string, ...any) {}
	h, err := hub.Open(s.w.Context(), hub.Options{Store: db, Index: s.index(), Groups: map[string]int{slotGroup: slotsAtOnce}, Hears: true, Say: say, Now: s.w.now})
	must(s.w, err)
	ctx, cancel := context.WithCancel(context.Background())
	next, err := server.New(ctx, server.Options{Fleet: query.Fleet{Hub: h}, Hosts: []string{"127.0.0.1"}, Say: say})
	must(s.w, err)
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	s.hub, s.next = h, next
	s.stop = func() {
		cancel()
		if err := errors.Join(<-done, db.Close()); err != nil {
			s.w.Errorf("the service: %v", err)
		}
		s.hub, s.next, s.stop = nil, nil, func() {}
	}
}

// look has a service that does not know what is published look again, as it does by a clock that
// is not the simulation's.
func (s *service) look() {
	s.w.standing.Lock()
	defer s.w.standing.Unlock()
	if s.hub != nil && s.hub.Fleet().Name == "" {
		s.stop()
		s.start()
	}
}

// index reads what is published, as 'caisson fleet serve' does.
func (s *service) index() hub.Index {
	look := s.w.publisher("service")
	look.Kept = &published.Shards{}
	return func(ctx context.Context, known string) (hub.Published, error) {
		p := *look
		p.Now = s.w.now()
		f, err := p.Read(ctx, s.w.policy(s.w))
		if err != nil {
			return hub.Published{}, err
		}
		out := hub.Published{Fleet: "metal", Floor: f.Floor(), Root: f.Root()}
		if out.Root == known {
			return out, nil
		}
		if out.Rows, err = f.Nodes(ctx); err == nil {
			out.Rollouts, err = rollout.States(ctx, f)
		}
		return out, err
	}
}

// get asks the service as a driver does.
func (s *service) get(who, path string) (*bytes.Buffer, error) {
	fate := s.w.pass(who)
	s.w.standing.RLock()
	defer s.w.standing.RUnlock()
	if s.next == nil || fate == refused {
		return nil, errAway
	}
	req := httptest.NewRequest(http.MethodGet, "http://127.0.0.1"+path, nil)
	answer := httptest.NewRecorder()
	s.next.ServeHTTP(answer, req)
	if answer.Code != http.StatusOK || fate == unanswered {
		return nil, fmt.Errorf("the service answers %d %.200s", answer.Code, answer.Body)
	}
	return answer.Body, nil
}

// reports is what a driver asks for reports with, verified by the keys of who drives.
func (s *service) reports(who string, by *report.Reporters) func(context.Context, report.Asked) (map[string]report.Standing, error) {
	return func(_ context.Context, asked report.Asked) (map[string]report.Standing, error) {
		body, err := s.get(who, "/v1/reports?"+asked.Query(by))
		if err != nil {
			return nil, err
		}
		return report.Hear(body, asked, by, s.w.now())
	}
}

// slots is what a driver asks with who holds one.
func (s *service) slots(who string) func(context.Context) (map[string]string, error) {
	return func(context.Context) (map[string]string, error) {
		body, err := s.get(who, "/v1/slots")
		if err != nil {
			return nil, err
		}
		var all struct{ Groups []hub.Group }
		if err := json.Unmarshal(body.Bytes(), &all); err != nil {
			return nil, err
		}
		held := map[string]string{}
		for _, g := range all.Groups {
			for _, l := range g.Held {
				held[l.Node] = "slot of " + g.Name
			}
		}
		return held, nil
	}
}
