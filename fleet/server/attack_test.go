// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/people"
	"github.com/caisson-os/caisson/spec"
	"github.com/caisson-os/caisson/test/attack"
)

// TestAttackRows: a row of service.yaml gets the answer that it names, and another one
// with its check taken away; no slot is freed.
func TestAttackRows(t *testing.T) {
	named := map[string]bool{}
	for _, row := range attack.LoadClass[attack.Service](t, "service") {
		if row.At != "fleet/server" || row.Slot == nil && row.Request == nil {
			continue
		}
		named[row.Check] = true
		t.Run(row.Name, func(t *testing.T) {
			play := plays
			if row.Slot != nil {
				play = frees
			}
			if !play(t, row, "") {
				t.Error("it succeeds, or a control does not")
			}
			if row.Check != "" && play(t, row, row.Check) {
				t.Errorf("it does not succeed without the check %q", row.Check)
			}
		})
	}
	for _, name := range slices.Concat((&Server{}).guardList().Names(), bindings.Names()) {
		if !named[name] {
			t.Errorf("no attack names the check %q", name)
		}
	}
}

// plays sends a row's request with the cookie of an operator, and reports whether the
// answer is the one that the row names.
func plays(t *testing.T, row attack.Service, without string) bool {
	t.Helper()
	s := newSite(t, rowsOf("n1"), true)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.PostForm(s.url+"/login", url.Values{"token": {s.tokens[people.Operator]}})
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	s.server.guards = s.server.guards.Without(without)
	method := http.MethodGet
	if row.Request.Post {
		method = http.MethodPost
	}
	req, err := http.NewRequest(method, s.url+row.Request.Path, strings.NewReader("a key"))
	if err != nil {
		t.Fatal(err)
	}
	req.Host = row.Request.Host
	for name, value := range row.Request.Header {
		req.Header.Set(name, value)
	}
	for _, c := range jar.Cookies(mustURL(t, s.url)) {
		req.AddCookie(c)
	}
	if resp, err = client.Do(req); err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		t.Errorf("%s: the operator is not logged in", row.Name)
	}
	return resp.StatusCode == row.Status
}

// frees reports whether n1 still has its slot after a row's proof came with a request to
// free it.
func frees(t *testing.T, row attack.Service, without string) bool {
	t.Helper()
	s := newSite(t, rowsOf("n1", "n2"), false)
	key := newKey(t)
	if status, text := s.ask("POST", "/v1/report", sealed(t, key, "n1", 1, nil)); status != 204 {
		t.Fatal(status, text)
	}
	lock := func(act, proof string) (int, string) {
		return s.ask("POST", "/v1/"+act, fmt.Appendf(nil, `{"client_params":{"id":"n1","group":"default"}}`), "fleet-lock-protocol", "true", ProofHeader, proof)
	}
	if status, text := lock("pre-reboot", proof(t, key, nil)); status != 200 {
		t.Fatal(status, text)
	}
	s.server.bindings = s.server.bindings.Without(without)
	lock("steady-state", proof(t, key, func(r *spec.SlotRequest) {
		r.Fleet, r.Node = cmp.Or(row.Slot.Fleet, r.Fleet), cmp.Or(row.Slot.Node, r.Node)
		r.Group, r.Act = cmp.Or(row.Slot.Group, r.Group), cmp.Or(row.Slot.Act, "steady-state")
	}))
	_, text := s.ask("GET", "/v1/slots", nil)
	return strings.Contains(text, `"node":"n1"`)
}
