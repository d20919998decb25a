// SPDX-License-Identifier: Apache-2.0

package people

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caisson-os/caisson/test/oidctest"
)

// back is a service that people come back to: it notes with what.
func back(t *testing.T) (callback string, came func() url.Values) {
	t.Helper()
	var query url.Values
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { query = req.URL.Query() }))
	t.Cleanup(s.Close)
	return s.URL + "/back", func() url.Values { return query }
}

// TestAPerson: a real provider says who has logged in, and their groups; what a browser brings back
// counts once, for its own login, and for ten minutes.
func TestAPerson(t *testing.T) {
	callback, came := back(t)
	at := oidctest.Start(t, callback)
	at.Groups(map[string][]string{"id2": {"ops", "all"}})
	p := New(Options{Issuer: at.Issuer, Client: oidctest.Client, Secret: oidctest.Secret, Callback: callback, Claim: "groups"})
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	login := func() (kept string) {
		t.Helper()
		to, kept, err := p.Begin(t.Context(), "/nodes")
		if err != nil {
			t.Fatal(err)
		}
		at.LogIn(&http.Client{Jar: jar}, to)
		if came().Get("code") == "" {
			t.Fatalf("came back with %v", came())
		}
		return kept
	}
	kept := login()
	who, to, err := p.Finish(t.Context(), kept, came())
	if err != nil || who.Subject != "id2" || who.Name != "test-user2" || !slices.Equal(who.Groups, []string{"ops", "all"}) || to != "/nodes" {
		t.Fatalf("%+v, %q, %v", who, to, err)
	}
	if _, _, err := p.Finish(t.Context(), kept, came()); err == nil {
		t.Error("a code counts twice")
	}

	mine, theirs := login(), ""
	if _, theirs, err = p.Begin(t.Context(), "/"); err != nil {
		t.Fatal(err)
	}
	other := New(p.o)
	for name, try := range map[string]func() error{
		"of another login":   func() error { _, _, err := p.Finish(t.Context(), theirs, came()); return err },
		"without a login":    func() error { _, _, err := p.Finish(t.Context(), "", came()); return err },
		"changed":            func() error { _, _, err := p.Finish(t.Context(), "A"+mine[1:]+"A", came()); return err },
		"of another process": func() error { _, _, err := other.Finish(t.Context(), mine, came()); return err },
		"very long":          func() error { _, _, err := p.Finish(t.Context(), strings.Repeat("A", 1<<20), came()); return err },
	} {
		if err := try(); !errors.Is(err, ErrFlow) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p.now = func() time.Time { return time.Now().Add(flowFor + time.Minute) }
	if _, _, err := p.Finish(t.Context(), mine, came()); !errors.Is(err, ErrFlow) {
		t.Errorf("too late: %v", err)
	}
	p.now = time.Now
	refused := url.Values{"state": came()["state"], "error": {"access_denied"}, "error_description": {"not\ntoday"}}
	if _, _, err := p.Finish(t.Context(), mine, refused); err == nil || !strings.Contains(err.Error(), "says: access_denied not") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

// TestIssuerIsComparedByteByByte: a slash at the end is another issuer, by OpenID Connect Discovery 1.0, 4.3,
// and the error says what the provider calls itself; by that name people get there.
func TestIssuerIsComparedByteByByte(t *testing.T) {
	callback, _ := back(t)
	at := oidctest.Start(t, callback)
	own, other := at.Issuer, strings.TrimSuffix(at.Issuer, "/")
	if other == own {
		other += "/"
	}
	begin := func(issuer string) error {
		_, _, err := New(Options{Issuer: issuer, Client: oidctest.Client, Secret: oidctest.Secret, Callback: callback, Claim: "groups"}).Begin(t.Context(), "/")
		return err
	}
	if err := begin(other); err == nil || !strings.HasSuffix(err.Error(), fmt.Sprintf("it calls itself %q: give --oidc-issuer so, byte by byte, not %q", own, other)) {
		t.Errorf("%s: %v", other, err)
	}
	if err := begin(own); err != nil {
		t.Errorf("%s: %v", own, err)
	}
}

// TestStolenProvider: a provider whose answers have no end fills no memory, and a login there is an error.
func TestStolenProvider(t *testing.T) {
	callback, came := back(t)
	at := oidctest.Start(t, callback)
	own, err := url.Parse(at.Issuer)
	if err != nil {
		t.Fatal(err)
	}
	var stolen atomic.Value // part of the path that the thief answers in place of the provider
	honest := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: own.Host}) }}
	thief := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !strings.Contains(req.URL.Path, stolen.Load().(string)) {
			honest.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		for range 8 * mostAnswer >> 16 { // so much is read without a bound
			if _, err := w.Write(bytes.Repeat([]byte(" "), 1<<16)); err != nil {
				return
			}
		}
	}))
	defer thief.Close()
	place, err := url.Parse(thief.URL)
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"/.well-known/": "for its description: unable to read response body: it answers 1048576 bytes or more",
		"/keys":         "it answers 1048576 bytes or more",
		"/userinfo":     "about a person: it answers 1048576 bytes or more",
		"/oauth/token":  "takes no code of this login",
		"/none of them": "",
	} {
		stolen.Store(path)
		p := New(Options{Issuer: at.Issuer, Client: oidctest.Client, Secret: oidctest.Secret, Callback: callback, Claim: "groups"})
		p.http.Transport.(bounded).RoundTripper.(*http.Transport).Proxy = http.ProxyURL(place)
		to, kept, err := p.Begin(t.Context(), "/")
		if err == nil {
			jar, err := cookiejar.New(nil)
			if err != nil {
				t.Fatal(err)
			}
			at.LogIn(&http.Client{Jar: jar}, to)
			_, _, err = p.Finish(t.Context(), kept, came())
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", path, err)
			}
		} else if !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestCheckSubject: a subject is one that no row of a log shortens, or shows otherwise.
func TestCheckSubject(t *testing.T) {
	for _, good := range []string{"id2", "auth0|5f7c8ec7", strings.Repeat("x", 255)} {
		if err := checkSubject(good); err != nil {
			t.Error(err)
		}
	}
	for _, bad := range []string{"", strings.Repeat("x", 256), "id2\n", "id2 ", "id\x1b[2K2", "\xff"} {
		if checkSubject(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestNoAnswer: a provider that is away is asked again, and not by each who waits for it.
func TestNoAnswer(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked++; w.WriteHeader(http.StatusBadGateway) }))
	defer s.Close()
	p := New(Options{Issuer: s.URL, Client: "caisson", Claim: "groups"})
	for range 3 {
		if _, _, err := p.Begin(t.Context(), "/"); err == nil || !strings.Contains(err.Error(), "for its description: 502") {
			t.Error(err)
		}
	}
	p.now = func() time.Time { return time.Now().Add(again) }
	_, _, _ = p.Begin(t.Context(), "/") // it counts that it was asked
	if asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// TestTexts: a claim is one text or a list, and what else is in it counts for no group.
func TestTexts(t *testing.T) {
	for _, c := range []struct {
		claim any
		want  []string
	}{{"ops", []string{"ops"}}, {[]any{"a", 1, "b", nil}, []string{"a", "b"}}, {nil, nil}, {7.0, nil}, {map[string]any{"ops": true}, nil}} {
		if got := texts(c.claim); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v", c.claim, got)
		}
	}
}

// TestScopes: the scope of the claim's name is asked for where the provider has it, or does not say which
// it has; some refuse a login for one that they do not know.
func TestScopes(t *testing.T) {
	for _, c := range []struct{ claim, supported, want string }{
		{"groups", "", "openid profile groups"}, {"groups", `["openid","groups"]`, "openid profile groups"},
		{"groups", `["openid","profile"]`, "openid profile"}, {"roles", "", "openid profile"}, {"roles", `["roles"]`, "openid profile roles"},
	} {
		mux := http.NewServeMux()
		at := httptest.NewServer(mux)
		mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
			said := fmt.Sprintf(`{"issuer":%q,"authorization_endpoint":%q,"token_endpoint":"x","jwks_uri":"x"`, at.URL, at.URL+"/login")
			if c.supported != "" {
				said += `,"scopes_supported":` + c.supported
			}
			fmt.Fprint(w, said+"}")
		})
		p := New(Options{Issuer: at.URL, Client: "x", Claim: c.claim})
		begun, _, err := p.Begin(t.Context(), "/")
		at.Close()
		u, bad := url.Parse(begun)
		if err := errors.Join(err, bad); err != nil {
			t.Fatal(err)
		}
		if got := u.Query().Get("scope"); got != c.want {
			t.Errorf("claim %s of %s: %q, want %q", c.claim, c.supported, got, c.want)
		}
	}
}
