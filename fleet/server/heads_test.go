// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/caisson-os/caisson/fleet/query"
	"github.com/caisson-os/caisson/spec/site/service"
)

type gitHas map[string]query.Head

func (g gitHas) Head(s *service.Service) (query.Head, bool) {
	h, ok := g[s.Name]
	return h, ok
}

// TestHeads: what git has stands beside the lock; where it does not answer, what it said
// last does, and why there is nothing newer.
func TestHeads(t *testing.T) {
	three, at := strings.Repeat("3", 40), time.Now()
	for name, c := range map[string]struct {
		git       gitHas
		has, lack []string
		noHead    string
	}{
		"not asked":     {gitHas{}, nil, []string{">git<", "asked"}, ""},
		"as locked":     {gitHas{"web": {Commit: two, At: at}}, []string{">git<", "asked"}, []string{"not locked"}, ""},
		"newer, frozen": {gitHas{"web": {Commit: three, At: at}}, []string{three, "not locked: it is frozen"}, nil, ""},
		"first":         {gitHas{"unlocked": {Commit: three, At: at}}, []string{three}, []string{"not locked yet"}, ""},
		"silent":        {gitHas{"web": {Trouble: errors.New("<b>no route</b>")}}, []string{"git does not say: &lt;b&gt;no route"}, []string{"asked"}, "<b>no route</b>"},
		"silent since":  {gitHas{"web": {Commit: two, At: at, Trouble: errors.New("no route")}}, []string{"asked", "git does not say: no route"}, nil, "no route"},
	} {
		s := newSite(t, rowsOf("n1"), false)
		s.knows(withServices)
		s.server.o.Heads = c.git
		_, page := s.ask("GET", "/services", nil)
		for _, want := range c.has {
			if !strings.Contains(page, want) {
				t.Errorf("%s: no %q in\n%s", name, want, page)
			}
		}
		for _, lack := range c.lack {
			if strings.Contains(page, lack) {
				t.Errorf("%s: %q in\n%s", name, lack, page)
			}
		}
		_, text := s.ask("GET", "/v1/services", nil)
		var got query.Services
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		for _, one := range got.Services {
			if one.Head != c.git[one.Name].Commit || one.Name == "web" && one.NoHead != c.noHead {
				t.Errorf("%s: %+v", name, one)
			}
		}
	}
}
