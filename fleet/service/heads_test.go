// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/content"
	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/spec/site/service"
	"github.com/caisson-os/caisson/test/gittest"
)

func followed(name, url string) service.Service {
	s := service.Service{Service: spec.Service{Name: name, Directories: []spec.ServiceDirectory{{From: "etc", To: "/etc/" + name}}}}
	s.Git.URL, s.Git.Branch = url, "main"
	return s
}

// TestHeads: what a server of git has is asked for now and then; what it said last stays
// while it does not answer, with why.
func TestHeads(t *testing.T) {
	repo := gittest.New(t)
	one := repo.Commit("one", map[string]string{"etc/x": "1"})
	asked := 0
	source := &content.Source{Cache: t.TempDir(), Say: t.Logf}
	h := &Heads{Every: time.Minute, Wait: time.Minute, Ask: func(ctx context.Context, s *service.Service) (string, error) {
		asked++
		head, err := source.Head(ctx, s)
		return head.ID, err
	}}
	list := []service.Service{followed("web", repo.URL), followed("gone", repo.URL+"/none")}
	now := time.Unix(1e9, 0)
	look := func(after time.Duration) (query.Head, query.Head) {
		t.Helper()
		now = now.Add(after)
		h.Look(t.Context(), list, now)
		web, ok := h.Head(&list[0])
		gone, ok2 := h.Head(&list[1])
		if !ok || !ok2 {
			t.Fatal("not asked")
		}
		return web, gone
	}
	if _, ok := h.Head(&list[0]); ok {
		t.Error("asked before it was")
	}
	web, gone := look(0)
	if web.Commit != one || web.Trouble != nil || !web.At.Equal(now) || gone.Commit != "" || gone.Trouble == nil || !gone.At.IsZero() {
		t.Errorf("%+v, %+v", web, gone)
	}
	repo.Commit("elsewhere", map[string]string{"other": "1"})
	two := repo.Commit("two", map[string]string{"etc/x": "2"})
	repo.Commit("elsewhere again", map[string]string{"other": "2"})
	if web, _ = look(59 * time.Second); web.Commit != one || asked != 2 {
		t.Errorf("within the minute: %+v, asked %d times", web, asked)
	}
	if web, _ = look(time.Second); web.Commit != two || asked != 4 {
		t.Errorf("after it: %+v, asked %d times", web, asked)
	}
	answered := web.At
	if err := os.RemoveAll(repo.Dir); err != nil {
		t.Fatal(err)
	}
	if web, _ = look(time.Minute); web.Commit != two || web.Trouble == nil || !web.At.Equal(answered) {
		t.Errorf("without the server: %+v", web)
	}
	was := list[0]
	list[0].Git.Branch = "other"
	if _, ok := h.Head(&list[0]); ok {
		t.Error("another branch has the commit of this one")
	}
	look(0)
	if _, ok := h.Head(&was); ok {
		t.Error("what is followed no more is kept")
	}
}

// TestAServerThatHangs keeps the next one from being asked no longer than one answer may
// take.
func TestAServerThatHangs(t *testing.T) {
	h := &Heads{Every: time.Minute, Wait: time.Millisecond, Ask: func(ctx context.Context, s *service.Service) (string, error) {
		if s.Name == "web" {
			<-ctx.Done()
			return "", ctx.Err()
		}
		return strings.Repeat("1", 40), nil
	}}
	list := []service.Service{followed("web", "https://a.example/x"), followed("next", "https://b.example/x")}
	h.Look(t.Context(), list, time.Now())
	web, _ := h.Head(&list[0])
	next, _ := h.Head(&list[1])
	if !errors.Is(web.Trouble, context.DeadlineExceeded) || next.Commit == "" {
		t.Errorf("%+v, %+v", web, next)
	}
}
