// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/caisson-os/caisson/fleet/people"
)

// TestRevokingOpensNothing: who could not report before a token was taken away cannot
// afterwards, also where it was the last one, and where the service starts again.
func TestRevokingOpensNothing(t *testing.T) {
	s := newSite(t, rowsOf("n1"), true)
	file := s.tokenFile
	without := func(role people.Role) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, regexp.MustCompile("(?m)^"+string(role)+" .*\n").ReplaceAll(text, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		if s.server.o.Tokens, err = people.OpenTokens(file); err != nil {
			t.Fatal(err)
		}
	}
	is := func(what string, want map[string]int) {
		t.Helper()
		for path, status := range want {
			method, path, _ := strings.Cut(path, " ")
			if got, text := s.ask(method, path, nil); got != status {
				t.Errorf("%s: %s %s without a token: %d %s", what, method, path, got, text)
			}
		}
	}
	shut := map[string]int{"POST /v1/report": 401, "POST /v1/hint": 401, "POST /v1/pre-reboot": 401, "POST /v1/steady-state": 401, "GET /v1/summary": 401, "POST /v1/nodes/n1/accept": 401}
	is("with tokens of all roles", shut)
	for _, role := range []people.Role{people.Reporter, people.Operator, people.Reader} {
		if without(role); s.server.o.Tokens.OpenToNodes() {
			t.Errorf("without tokens of role %s nodes need none", role)
		}
		is("without tokens of role "+string(role), shut)
	}
	said := ""
	if s.server.o.Tokens.Tell(func(format string, args ...any) { said += fmt.Sprintf(format, args...) }); !strings.HasPrefix(said, "no node may report") {
		t.Errorf("it says %q where no node may report", said)
	}
	if _, err := people.AddToken(file, "new", people.Operator); err != nil { // to a file that somebody emptied
		t.Fatal(err)
	}
	without("nobody")
	is("with a new operator", shut)
}

// TestTheCookieIsTheHosts: by TLS no other host and no page without TLS can set it.
func TestTheCookieIsTheHosts(t *testing.T) {
	s := newSite(t, rowsOf("n1"), true)
	for tls, name := range map[bool]string{false: "caisson=", true: "__Host-caisson="} {
		s.server.o.TLS = tls
		ask := func(method, path, body, cookie string) *http.Response {
			req := httptest.NewRequest(method, s.url+path, strings.NewReader(body))
			req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
			if cookie != "" {
				req.Header.Set("Cookie", cookie)
			}
			w := httptest.NewRecorder()
			s.server.ServeHTTP(w, req)
			return w.Result()
		}
		c := ask("POST", "/login", url.Values{"token": {s.tokens[people.Reader]}}.Encode(), "").Header.Get("Set-Cookie")
		if !strings.HasPrefix(c, name) || strings.Contains(c, "Domain") || !strings.Contains(c, "Path=/;") || strings.Contains(c, "Secure") != tls {
			t.Errorf("TLS %v: %q", tls, c)
		}
		value, _, _ := strings.Cut(strings.TrimPrefix(c, name), ";")
		if got := ask("GET", "/v1/summary", "", name+value).StatusCode; got != http.StatusOK {
			t.Errorf("TLS %v: %d", tls, got)
		}
		if got := ask("GET", "/v1/summary", "", "caisson="+value).StatusCode; tls && got != http.StatusUnauthorized {
			t.Errorf("a cookie that a page without TLS can set: %d", got)
		}
		out := ask("POST", "/logout", "", name+value).Header.Get("Set-Cookie")
		if !strings.HasPrefix(out, name+";") || ask("GET", "/v1/summary", "", name+value).StatusCode != http.StatusUnauthorized {
			t.Errorf("after logging out: %q", out)
		}
	}
}
