// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestRevokingOpensNothing: who could not report before a token was taken away cannot
// afterwards, also where it was the last one, and where the service starts again.
func TestRevokingOpensNothing(t *testing.T) {
	s := newSite(t, published("n1"), true)
	file := s.server.o.Tokens.name
	without := func(role Role) {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, regexp.MustCompile("(?m)^"+string(role)+" .*\n").ReplaceAll(text, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		if s.server.o.Tokens, err = OpenTokens(file); err != nil {
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
	for _, role := range []Role{Reporter, Operator, Reader} {
		if without(role); s.server.o.Tokens.openToNodes() {
			t.Errorf("without tokens of role %s nodes need none", role)
		}
		is("without tokens of role "+string(role), shut)
	}
	if !s.server.o.Tokens.shutOut() {
		t.Error("nothing would say that no node may report")
	}
	if _, err := AddToken(file, "new", Operator); err != nil { // to a file that somebody emptied
		t.Fatal(err)
	}
	s.server.o.Tokens.looked = time.Time{}
	is("with a new operator", shut)
}

// TestReportsAreOpen as long as a file says so, which a new one does and one with a token
// for nodes does not.
func TestReportsAreOpen(t *testing.T) {
	file := t.TempDir() + "/tokens"
	for i, c := range []struct {
		role Role
		open bool
	}{{Operator, true}, {Reader, true}, {Reporter, false}, {Reader, false}} {
		if _, err := AddToken(file, fmt.Sprint("t", i), c.role); err != nil {
			t.Fatal(err)
		}
		tokens, err := OpenTokens(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := tokens.openToNodes(); got != c.open || tokens.shutOut() {
			t.Errorf("after a token of role %s nodes need none: %v; nobody may report: %v", c.role, got, tokens.shutOut())
		}
	}
	if err := os.WriteFile(file, []byte("reports open\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tokens, err := OpenTokens(file)
	if err != nil || !tokens.openToNodes() {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o644); err != nil { // it cannot be read any more
		t.Fatal(err)
	}
	tokens.looked, tokens.stamp = time.Time{}, time.Time{}
	if tokens.openToNodes() {
		t.Error("a file for all to change opens the service")
	}
}

// TestTheCookieIsTheHosts: by TLS no other host and no page without TLS can set it.
func TestTheCookieIsTheHosts(t *testing.T) {
	s := newSite(t, published("n1"), true)
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
		c := ask("POST", "/login", url.Values{"token": {s.tokens[Reader]}}.Encode(), "").Header.Get("Set-Cookie")
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

// TestTokensThatAreWrong: a file that is not right any more lets nobody in, and the log says so, once;
// when it is right again it says that, too.
func TestTokensThatAreWrong(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	token, err := AddToken(file, "eve", Operator)
	if err != nil {
		t.Fatal(err)
	}
	right, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	tokens, err := OpenTokens(file)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	tokens.tell(func(format string, args ...any) { fmt.Fprintf(&said, format+"\n", args...) })
	for i, c := range []struct {
		text string
		role Role
		want string
	}{
		{string(right) + "boss x y\n", Nobody, ":4: neither ROLE NAME SHA256"}, {string(right) + "boss x yy\n", Nobody, ""},
		{string(right), Operator, "is right again"}, {string(right) + "\n", Operator, ""},
	} {
		if err := os.WriteFile(file, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		said.Reset()
		tokens.looked = time.Time{}
		if got := tokens.find(token).Role; got != c.role || !strings.Contains(said.String(), c.want) || (said.Len() > 0) != (c.want != "") {
			t.Errorf("%d: role %q, said %q", i, got, &said)
		}
	}
}
